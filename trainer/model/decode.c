#include "trainer/model/decode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define BLOCK 32 /* number of tokens that are read in one pass */

struct layer { /* parameters of a layer, and its keys and values, (context,width) each */
    const float *norm1, *shift1, *qkv, *qkv_bias, *proj, *proj_bias;
    const float *norm2, *shift2, *up, *up_bias, *down, *down_bias;
    float *keys, *values;
};

struct decoder {
    struct device *device;
    /* Token (vocab,width), place (context,width), norm and shift (width), head (vocab,width) */
    const float *token, *place, *norm, *shift, *head;
    struct layer *layers;
    int64_t layer_count, heads, width, context, vocab;
    enum device_activation activation;
    int64_t position;
    float *memory;        /* one allocation, which holds the arrays below and the layers' keys and values */
    float *x, *y, *delta; /* (BLOCK,width) */
    float *qkv;           /* (BLOCK,3 width) */
    float *wide;          /* (BLOCK,4 width) */
    float *active;        /* (BLOCK,4 width) */
    float *stats;         /* (BLOCK,2) */
    float *score;         /* (context) */
};

static const float *param_find(const struct model *m, const float *params, const char *name)
{
    for (size_t i = 0; i < m->tensor_count; i++)
        if (!strcmp(m->tensors[i].name, name))
            return params + m->tensors[i].offset;
    return NULL;
}

static const float *layer_param(const struct model *m, const float *params, int64_t layer, const char *name)
{
    char whole[64];
    snprintf(whole, sizeof(whole), "transformer.h.%lld.%s", (long long)layer, name);
    const float *p = param_find(m, params, whole);
    BUG_ON(!p);
    return p;
}

static void find_layer(struct layer *l, const struct model *m, const float *params, int64_t i)
{
    *l = (struct layer){
        .norm1 = layer_param(m, params, i, "ln_1.weight"),
        .shift1 = layer_param(m, params, i, "ln_1.bias"),
        .qkv = layer_param(m, params, i, "attn.c_attn.weight"),
        .qkv_bias = layer_param(m, params, i, "attn.c_attn.bias"),
        .proj = layer_param(m, params, i, "attn.c_proj.weight"),
        .proj_bias = layer_param(m, params, i, "attn.c_proj.bias"),
        .norm2 = layer_param(m, params, i, "ln_2.weight"),
        .shift2 = layer_param(m, params, i, "ln_2.bias"),
        .up = layer_param(m, params, i, "mlp.c_fc.weight"),
        .up_bias = layer_param(m, params, i, "mlp.c_fc.bias"),
        .down = layer_param(m, params, i, "mlp.c_proj.weight"),
        .down_bias = layer_param(m, params, i, "mlp.c_proj.bias"),
    };
}

/* Returns the next piece of memory, on a 16-float boundary. Returns NULL while `memory` is NULL, so that the
 * first pass only counts. */
static float *decoder_memory_take(float *memory, size_t *at, int64_t count)
{
    float *p = memory ? memory + *at : NULL;
    *at += (size_t)(count + 15) / 16 * 16;
    return p;
}

/* Assigns the arrays to memory. Returns the number of floats needed. */
static size_t decoder_lay_out(struct decoder *d, float *memory)
{
    size_t at = 0;
    for (int64_t i = 0; i < d->layer_count; i++) {
        d->layers[i].keys = decoder_memory_take(memory, &at, d->context * d->width);
        d->layers[i].values = decoder_memory_take(memory, &at, d->context * d->width);
    }
    d->x = decoder_memory_take(memory, &at, BLOCK * d->width);
    d->y = decoder_memory_take(memory, &at, BLOCK * d->width);
    d->delta = decoder_memory_take(memory, &at, BLOCK * d->width);
    d->qkv = decoder_memory_take(memory, &at, BLOCK * 3 * d->width);
    d->wide = decoder_memory_take(memory, &at, BLOCK * 4 * d->width);
    d->active = decoder_memory_take(memory, &at, BLOCK * 4 * d->width);
    d->stats = decoder_memory_take(memory, &at, BLOCK * 2);
    d->score = decoder_memory_take(memory, &at, d->context);
    return at;
}

enum err_code decoder_open(struct decoder **out, const struct train_spec *spec, struct model *m,
                           const float *params, struct err *e)
{
    void *memory = NULL;
    BUG_ON(spec->model.type != MODEL_GPT || !m->device->host);
    struct decoder *d = xcalloc(1, sizeof(*d));
    *d = (struct decoder){
        .device = m->device,
        .layer_count = spec->model.layers,
        .heads = spec->model.heads,
        .width = spec->model.width,
        .context = m->in,
        .vocab = m->out,
        .activation = spec->model.activation == ACTIVATION_GELU ? DEVICE_GELU : DEVICE_GELU_TANH,
        .token = param_find(m, params, "transformer.wte.weight"),
        .place = param_find(m, params, "transformer.wpe.weight"),
        .norm = param_find(m, params, "transformer.ln_f.weight"),
        .shift = param_find(m, params, "transformer.ln_f.bias"),
        .head = param_find(m, params, spec->model.tied ? "transformer.wte.weight" : "lm_head.weight"),
    };
    BUG_ON(!d->token || !d->place || !d->norm || !d->shift || !d->head);
    d->layers = xcalloc((size_t)d->layer_count, sizeof(*d->layers));
    for (int64_t i = 0; i < d->layer_count; i++)
        find_layer(&d->layers[i], m, params, i);
    /* The layout runs twice: first to find the size, then to assign the memory. */
    if (device_alloc(d->device, decoder_lay_out(d, NULL) * sizeof(float), "keys and values", &memory, e)) {
        decoder_close(d);
        return e->code;
    }
    d->memory = memory;
    decoder_lay_out(d, memory);
    *out = d;
    return ERR_OK;
}

void decoder_close(struct decoder *d)
{
    if (!d)
        return;
    d->device->ops->free(d->device, d->memory);
    free(d->layers);
    free(d);
}

/* ---- reading */

static void decode_norm(struct decoder *d, int64_t n, const float *gain, const float *shift)
{
    struct device_norm h = {
        .n = {.rows = 1, .context = n, .width = d->width},
        .residual = d->x,
        .gain = gain,
        .shift = shift,
        .x = d->x,
        .stats = d->stats,
        .type = DEVICE_F32,
        .y = d->y,
    };
    d->device->ops->norm(d->device, &h);
}

/* y (n,out) = x (n,in) w; w is (in,out), or (out,in) if transposed */
static void decode_product(struct decoder *d, const float *x, const float *w, bool transposed, int64_t n,
                           int64_t in, int64_t out, float *y)
{
    struct device_product h = {
        .type = DEVICE_F32,
        .out = DEVICE_F32,
        .trans_b = transposed,
        .m = n,
        .n = out,
        .k = in,
        .a = x,
        .b = w,
        .c = y,
    };
    d->device->ops->product(d->device, &h);
}

/* z (n,out) = y (n,width) w (width,out) + bias. Unless a is NULL, a = activation(z). */
static void decode_linear(struct decoder *d, const float *w, const float *bias, int64_t n, int64_t out,
                          float *z, float *a)
{
    struct device_linear h = {
        .type = DEVICE_F32,
        .kept = DEVICE_F32,
        .rows = n,
        .in = d->width,
        .out = out,
        .x = d->y,
        .w = w,
        .bias = bias,
        .z = z,
        .kind = d->activation,
        .a = a,
    };
    d->device->ops->linear(d->device, &h);
}

static void residual_add(struct decoder *d, int64_t n, const float *bias)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < d->width; j++)
            d->x[i * d->width + j] += d->delta[i * d->width + j] + bias[j];
}

/* Attention of one query of one head over the first `seen` keys and values. */
static void query_attend(const struct decoder *d, const struct layer *l, const float *q, int64_t seen,
                         int64_t from, int64_t size, float *out)
{
    float scale = 1.0f / sqrtf((float)size), largest = -INFINITY, sum = 0.0f;
    for (int64_t j = 0; j < seen; j++) {
        const float *k = l->keys + j * d->width + from;
        float dot = 0.0f;
        for (int64_t c = 0; c < size; c++)
            dot += q[c] * k[c];
        d->score[j] = dot * scale;
        largest = fmaxf(largest, d->score[j]);
    }
    memset(out, 0, (size_t)size * sizeof(float));
    for (int64_t j = 0; j < seen; j++) {
        const float *v = l->values + j * d->width + from;
        float weight = expf(d->score[j] - largest);
        sum += weight;
        for (int64_t c = 0; c < size; c++)
            out[c] += weight * v[c];
    }
    for (int64_t c = 0; c < size; c++)
        out[c] /= sum;
}

static void decode_attention(struct decoder *d, struct layer *l, int64_t n)
{
    int64_t width = d->width, size = width / d->heads;
    for (int64_t i = 0; i < n; i++) {
        const float *row = d->qkv + i * 3 * width;
        memcpy(l->keys + (d->position + i) * width, row + width, (size_t)width * sizeof(float));
        memcpy(l->values + (d->position + i) * width, row + 2 * width, (size_t)width * sizeof(float));
        for (int64_t from = 0; from < width; from += size)
            query_attend(d, l, row + from, d->position + i + 1, from, size, d->y + i * width + from);
    }
}

static void decode_layer(struct decoder *d, struct layer *l, int64_t n)
{
    int64_t width = d->width;
    decode_norm(d, n, l->norm1, l->shift1);
    decode_linear(d, l->qkv, l->qkv_bias, n, 3 * width, d->qkv, NULL);
    decode_attention(d, l, n);
    decode_product(d, d->y, l->proj, false, n, width, width, d->delta);
    residual_add(d, n, l->proj_bias);
    decode_norm(d, n, l->norm2, l->shift2);
    decode_linear(d, l->up, l->up_bias, n, 4 * width, d->wide, d->active);
    decode_product(d, d->active, l->down, false, n, 4 * width, width, d->delta);
    residual_add(d, n, l->down_bias);
}

static void decode_block(struct decoder *d, const int32_t *token, int64_t n, float *logits, int64_t last)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < d->width; j++)
            d->x[i * d->width + j] =
                d->token[token[i] * d->width + j] + d->place[(d->position + i) * d->width + j];
    for (int64_t i = 0; i < d->layer_count; i++)
        decode_layer(d, &d->layers[i], n);
    d->position += n;
    if (last == 0)
        return;
    decode_norm(d, n, d->norm, d->shift);
    decode_product(d, d->y + (n - last) * d->width, d->head, true, last, d->width, d->vocab, logits);
}

void decoder_feed(struct decoder *d, const int32_t *token, int64_t n, float *logits, int64_t last)
{
    BUG_ON(n < 1 || last < 0 || last > n || d->position + n > d->context);
    for (int64_t done = 0; done < n;) {
        int64_t now = n - done < BLOCK ? n - done : BLOCK, left = n - done - now;
        int64_t here = last > left ? last - left : 0;
        here = here > now ? now : here;
        decode_block(d, token + done, now, logits, here);
        logits += here * d->vocab;
        done += now;
    }
}

void decoder_reset(struct decoder *d)
{
    d->position = 0;
}

int64_t decoder_position(const struct decoder *d)
{
    return d->position;
}
