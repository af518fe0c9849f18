#include "gpt_reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"

double reference_activation(enum device_activation kind, double x)
{
    switch (kind) {
    case DEVICE_RELU:
        return x > 0.0 ? x : 0.0;
    case DEVICE_TANH:
        return tanh(x);
    case DEVICE_GELU:
        return 0.5 * x * erfc(-x / sqrt(2.0));
    case DEVICE_GELU_TANH:
        break;
    }
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

double reference_kept(const struct device_dropout *h, int64_t row, int64_t line, int64_t i)
{
    if (h->p == 0.0f)
        return 1.0;
    uint32_t c[4] = {(uint32_t)(i / 64 * 16 + i % 16), (uint32_t)line, (uint32_t)h->sample[row],
                     (uint32_t)((uint64_t)h->sample[row] >> 32)};
    uint32_t k[2] = {(uint32_t)h->key, (uint32_t)(h->key >> 32)};
    for (int round = 0; round < 7; round++) {
        uint64_t p = (uint64_t)c[0] * 0xd2511f53u, q = (uint64_t)c[2] * 0xcd9e8d57u;
        uint32_t next[4] = {(uint32_t)(q >> 32) ^ c[1] ^ k[0], (uint32_t)q, (uint32_t)(p >> 32) ^ c[3] ^ k[1],
                            (uint32_t)p};
        memcpy(c, next, sizeof(c));
        k[0] += 0x9e3779b9u;
        k[1] += 0xbb67ae85u;
    }
    return (double)c[i / 16 % 4] < floor((double)h->p * 4294967296.0) ? 0.0 : 1.0 / (1.0 - (double)h->p);
}

struct pass {
    const struct model *m;
    const struct gpt_shape *s;
    const double *params;
    const struct model_batch *b;
    int64_t row, layer;
    bool dropping;
};

static const double *tensor_of(const struct pass *p, const char *format)
{
    char name[64];
    if (strstr(format, "%")) {
        snprintf(name, sizeof(name), "transformer.h.%lld.%s", (long long)p->layer, format + 1);
        format = name;
    }
    for (size_t i = 0; i < p->m->tensor_count; i++)
        if (!strcmp(p->m->tensors[i].name, format))
            return p->params + p->m->tensors[i].offset;
    fprintf(stderr, "no tensor %s\n", format);
    abort();
}

/* Returns element i of a line of a dropout mask. place: 0: the embedding; 1: the attention weights; 2 and 3: the
 * outputs of attention and of the MLP. */
static double dropout_kept(const struct pass *p, int64_t layer, int place, int64_t line, int64_t i)
{
    uint64_t step = random_stream(p->s->seed, (uint64_t)p->b->step).state;
    struct device_dropout h = {p->dropping ? (float)p->s->dropout : 0.0f,
                               random_stream(step, (uint64_t)(layer * 4 + place)).state, p->b->sample};
    return reference_kept(&h, p->row, line, i);
}

static void layer_norm(double *y, const double *x, const double *gain, const double *shift, int64_t n)
{
    double mean = 0.0, square = 0.0;
    for (int64_t j = 0; j < n; j++)
        mean += x[j] / (double)n;
    for (int64_t j = 0; j < n; j++)
        square += (x[j] - mean) * (x[j] - mean) / (double)n;
    for (int64_t j = 0; j < n; j++)
        y[j] = gain[j] * (x[j] - mean) / sqrt(square + 1e-5) + shift[j];
}

/* y (out) = x (in) w (in,out) + bias (out) */
static void linear_forward(double *y, const double *x, const double *w, const double *bias, int64_t in,
                           int64_t out)
{
    for (int64_t j = 0; j < out; j++)
        y[j] = bias[j];
    for (int64_t i = 0; i < in; i++)
        for (int64_t j = 0; j < out; j++)
            y[j] += x[i] * w[i * out + j];
}

/* Computes o (context,width) from qkv (context, 3 width). */
static void attention_forward(const struct pass *p, double *o, const double *qkv)
{
    int64_t width = p->s->width, size = width / p->s->heads;
    double *weight = xcalloc((size_t)p->s->context, sizeof(double));
    memset(o, 0, (size_t)(p->s->context * width) * sizeof(double));
    for (int64_t h = 0; h < p->s->heads; h++)
        for (int64_t q = 0; q < p->s->context; q++) {
            double sum = 0.0;
            for (int64_t k = 0; k <= q; k++) {
                double score = 0.0;
                for (int64_t j = 0; j < size; j++)
                    score += qkv[q * 3 * width + h * size + j] * qkv[k * 3 * width + width + h * size + j];
                weight[k] = exp(score / sqrt((double)size));
                sum += weight[k];
            }
            for (int64_t k = 0; k <= q; k++) {
                double w = weight[k] / sum * dropout_kept(p, p->layer, 1, h * p->s->context + q, k);
                for (int64_t j = 0; j < size; j++)
                    o[q * width + h * size + j] += w * qkv[k * 3 * width + 2 * width + h * size + j];
            }
        }
    free(weight);
}

static void layer_forward(const struct pass *p, double *x)
{
    int64_t width = p->s->width, context = p->s->context;
    double *y = xcalloc((size_t)(9 * width), sizeof(double)), *z = y + width, *added = y + 5 * width;
    double *qkv = xcalloc((size_t)(4 * context * width), sizeof(double)), *o = qkv + 3 * context * width;
    for (int64_t t = 0; t < context; t++) {
        layer_norm(y, x + t * width, tensor_of(p, "%ln_1.weight"), tensor_of(p, "%ln_1.bias"), width);
        linear_forward(qkv + t * 3 * width, y, tensor_of(p, "%attn.c_attn.weight"),
                       tensor_of(p, "%attn.c_attn.bias"), width, 3 * width);
    }
    attention_forward(p, o, qkv);
    for (int64_t t = 0; t < context; t++) {
        double *at = x + t * width;
        linear_forward(added, o + t * width, tensor_of(p, "%attn.c_proj.weight"),
                       tensor_of(p, "%attn.c_proj.bias"), width, width);
        for (int64_t j = 0; j < width; j++)
            at[j] += added[j] * dropout_kept(p, p->layer, 2, t, j);
        layer_norm(y, at, tensor_of(p, "%ln_2.weight"), tensor_of(p, "%ln_2.bias"), width);
        linear_forward(z, y, tensor_of(p, "%mlp.c_fc.weight"), tensor_of(p, "%mlp.c_fc.bias"), width,
                       4 * width);
        for (int64_t j = 0; j < 4 * width; j++)
            z[j] = reference_activation(p->s->activation, z[j]);
        linear_forward(added, z, tensor_of(p, "%mlp.c_proj.weight"), tensor_of(p, "%mlp.c_proj.bias"),
                       4 * width, width);
        for (int64_t j = 0; j < width; j++)
            at[j] += added[j] * dropout_kept(p, p->layer, 3, t, j);
    }
    free(y);
    free(qkv);
}

/* Returns the loss of a token from y, the input of the head. Also writes logits (vocab), unless NULL. */
static double token_loss(const struct pass *p, const double *y, int32_t label, double *logits)
{
    const double *head = tensor_of(p, p->s->tied ? "transformer.wte.weight" : "lm_head.weight");
    double sum = 0.0, at_label = 0.0;
    for (int64_t v = 0; v < p->s->vocab; v++) {
        double logit = 0.0;
        for (int64_t j = 0; j < p->s->width; j++)
            logit += y[j] * head[v * p->s->width + j];
        sum += exp(logit);
        at_label = v == label ? logit : at_label;
        if (logits)
            logits[v] = logit;
    }
    return log(sum) - at_label;
}

static double row_loss(struct pass *p, double *logits)
{
    int64_t width = p->s->width, context = p->s->context;
    double *x = xcalloc((size_t)((context + 1) * width), sizeof(double)), *y = x + context * width,
           loss = 0.0;
    for (int64_t t = 0; t < context; t++)
        for (int64_t j = 0; j < width; j++)
            x[t * width + j] =
                (tensor_of(p, "transformer.wte.weight")[p->b->token[p->row * context + t] * width + j] +
                 tensor_of(p, "transformer.wpe.weight")[t * width + j]) *
                dropout_kept(p, p->s->layers, 0, t, j);
    for (p->layer = 0; p->layer < p->s->layers; p->layer++)
        layer_forward(p, x);
    for (int64_t t = 0; t < context; t++) {
        layer_norm(y, x + t * width, tensor_of(p, "transformer.ln_f.weight"),
                   tensor_of(p, "transformer.ln_f.bias"), width);
        loss += token_loss(p, y, p->b->label[p->row * context + t],
                           logits ? logits + (p->row * context + t) * p->s->vocab : NULL);
    }
    free(x);
    return loss / (double)context;
}

static double all_rows(const struct model *m, const struct gpt_shape *s, const double *params,
                       const struct model_batch *b, bool dropping, double *logits)
{
    struct pass p = {.m = m, .s = s, .params = params, .b = b, .dropping = dropping};
    double loss = 0.0;
    for (p.row = 0; p.row < b->rows; p.row++)
        loss += row_loss(&p, logits);
    return loss;
}

double reference_loss(const struct model *m, const struct gpt_shape *s, const double *params,
                      const struct model_batch *b, bool dropping)
{
    return all_rows(m, s, params, b, dropping, NULL);
}

double reference_logits(const struct model *m, const struct gpt_shape *s, const double *params,
                        const struct model_batch *b, double *logits)
{
    return all_rows(m, s, params, b, false, logits);
}
