/* GPT: forward and backward pass. n is the number of tokens, C the width; comments name shapes. */
#include "base/mem.h"
#include "base/random.h"
#include "trainer/model/gpt_internal.h"

/* The arguments of a pass over one batch. */
struct pass {
    struct gpt *g;
    struct device *d;
    const struct device_ops *ops;
    const struct model_batch *b;
    const float *params;
    float *grads;
    const void *weights; /* the weights that products read, of `type` */
    enum device_type type, kept, attended;
    struct device_tokens n;
    int64_t tokens;
    bool dropping;
    bool set;   /* products set gradients instead of adding to them */
    size_t end; /* grads from this offset to the end are reported already */
    model_ready_fn ready;
    void *arg;
};

static void pass_init(struct pass *p, struct model *m, const float *params, const struct model_batch *b)
{
    struct gpt *g = gpt_of(m);
    *p = (struct pass){.g = g, .d = m->device, .ops = m->device->ops, .b = b, .params = params};
    p->type = g->s.type;
    p->kept = g->kept;
    p->attended = g->attended;
    p->n = (struct device_tokens){b->rows, g->s.context, g->s.width};
    p->tokens = b->rows * g->s.context;
    p->end = m->count;
    p->weights = params;
    if (p->type != DEVICE_BF16)
        return;
    if (!b->same_params) {
        model_need(b, m->count);
        p->ops->narrow(p->d, m->narrowed, params, m->count);
    }
    p->weights = m->narrowed;
}

/* ---- dropout: a key for each step and place */

enum place { PLACE_EMBEDDING, PLACE_ATTENTION, PLACE_ATTENTION_OUT, PLACE_MLP_OUT, PLACES };

static struct device_dropout dropout_at(const struct pass *p, int64_t layer, enum place place)
{
    struct device_dropout none = {0};
    if (!p->dropping)
        return none;
    uint64_t step = random_stream(p->g->s.seed, (uint64_t)p->b->step).state;
    uint64_t key = random_stream(step, (uint64_t)(layer * PLACES + place)).state;
    return (struct device_dropout){(float)p->g->s.dropout, key, p->b->sample};
}

/* ---- products; offsets are those of params */

static const void *weight_at(const struct pass *p, size_t offset)
{
    return (const char *)p->weights + offset * device_size(p->type);
}

/* z (n,out) = x (n,in) W (in,out) + bias. Unless a is NULL, a = activation(z). kept: the type of z. */
static void linear_forward(const struct pass *p, enum device_type kept, void *z, const void *x,
                           const struct gpt_linear_params *w, int64_t in, int64_t out, void *a)
{
    struct device_linear h = {
        .type = p->type,
        .kept = kept,
        .rows = p->tokens,
        .in = in,
        .out = out,
        .x = x,
        .w = weight_at(p, w->weight),
        .bias = p->params + w->bias,
        .typed = weight_at(p, w->bias),
        .z = z,
        .kind = p->g->s.activation,
        .a = a,
    };
    p->ops->linear(p->d, &h);
}

/* y (n,out) = x (n,in) W (in,out), without the bias, which is added later. */
static void linear_project(const struct pass *p, void *y, const void *x, size_t w, int64_t in, int64_t out)
{
    struct device_product h = {.type = p->type,
                               .out = p->kept,
                               .m = p->tokens,
                               .n = out,
                               .k = in,
                               .a = x,
                               .b = weight_at(p, w),
                               .c = y};
    p->ops->product(p->d, &h);
}

/* dx (n,in) = dy (n,out) W^T; kept: the type of dx */
static void linear_back(const struct pass *p, enum device_type kept, void *dx, const void *dy, size_t w,
                        int64_t in, int64_t out)
{
    struct device_product h = {.type = p->type,
                               .out = kept,
                               .trans_b = true,
                               .m = p->tokens,
                               .n = in,
                               .k = out,
                               .a = dy,
                               .b = weight_at(p, w),
                               .c = dx};
    p->ops->product(p->d, &h);
}

/* dW (in,out) += x^T dy, or = */
static void linear_grad(const struct pass *p, size_t w, const void *x, const void *dy, int64_t in,
                        int64_t out)
{
    struct device_product h = {.type = p->type,
                               .out = DEVICE_F32,
                               .trans_a = true,
                               .m = in,
                               .n = out,
                               .k = p->tokens,
                               .a = x,
                               .b = dy,
                               .beta = p->set ? 0.0f : 1.0f,
                               .c = p->grads + w};
    p->ops->product(p->d, &h);
}

/* Computes the gradients of a layer's weights and bias at once. Returns false if the device cannot. */
static bool weight_and_bias_grad(const struct pass *p, const struct gpt_linear_params *w, const void *x,
                                 const void *dy, int64_t in, int64_t out)
{
    struct device_weight_grad h = {.type = p->type,
                                   .rows = p->tokens,
                                   .in = in,
                                   .out = out,
                                   .x = x,
                                   .dy = dy,
                                   .dw = p->grads + w->weight,
                                   .dbias = p->grads + w->bias,
                                   .set = p->set};
    return p->ops->weight_grad && p->ops->weight_grad(p->d, &h);
}

/* Returns x (n,cols), which is attended, in the type that products read. */
static const void *typed_input(const struct pass *p, const void *x, int64_t cols)
{
    if (p->type == p->attended)
        return x;
    p->ops->narrow(p->d, p->g->narrow, x, (size_t)(p->tokens * cols));
    return p->g->narrow;
}

/* ---- forward */

/* Returns the memory in which a projection leaves what norm() adds to the residual: x itself if the types
 * allow it. */
static void *delta_of(const struct pass *p, float *x)
{
    return p->g->delta ? p->g->delta : (void *)x;
}

/* x = residual + dropout(delta + bias), y = norm(x). If delta is NULL, x is the residual. */
static void norm_forward(const struct pass *p, const struct gpt_norm_params *params, const float *residual,
                         const void *delta, float *x, size_t bias, struct device_dropout dropped,
                         float *stats, void *y)
{
    struct device_norm h = {
        .n = p->n,
        .dropout = dropped,
        .residual = residual,
        .delta = delta,
        .bias = p->params + bias,
        .gain = p->params + params->gain,
        .shift = p->params + params->shift,
        .x = x,
        .stats = stats,
        .type = p->type,
        .kept = p->kept,
        .y = y,
    };
    p->ops->norm(p->d, &h);
}

static struct device_attention attention_call(const struct pass *p, int64_t layer)
{
    struct gpt_layer *l = &p->g->layers[layer];
    return (struct device_attention){.n = p->n,
                                     .heads = p->g->s.heads,
                                     .dropout = dropout_at(p, layer, PLACE_ATTENTION),
                                     .type = p->type,
                                     .kept = p->attended,
                                     .qkv = l->qkv_out,
                                     .o = l->o,
                                     .lse = l->lse};
}

/* Computes x2 and y2 from x1 and y1. */
static void gpt_attention_forward(const struct pass *p, int64_t layer)
{
    struct gpt_layer *l = &p->g->layers[layer];
    struct device_attention h = attention_call(p, layer);
    int64_t width = p->n.width;
    void *delta = delta_of(p, l->x2);
    linear_forward(p, p->attended, l->qkv_out, l->y1, &l->qkv, width, 3 * width, NULL);
    p->ops->attention(p->d, &h);
    linear_project(p, delta, typed_input(p, l->o, width), l->attention.weight, width, width);
    norm_forward(p, &l->norm2, l->x1, delta, l->x2, l->attention.bias,
                 dropout_at(p, layer, PLACE_ATTENTION_OUT), l->stats2, l->y2);
}

/* The layer's output of the activation, or the memory in which it is computed. */
static void *activation_of(const struct pass *p, const struct gpt_layer *l)
{
    return l->a ? l->a : p->g->a;
}

/* Computes the next layer's x1 and y1, or the input of the head, from x2 and y2. */
static void mlp_block_forward(const struct pass *p, int64_t layer)
{
    struct gpt *g = p->g;
    struct gpt_layer *l = &g->layers[layer], *next = layer + 1 < g->s.layers ? l + 1 : NULL;
    int64_t width = p->n.width;
    float *x = next ? next->x1 : g->x;
    void *delta = delta_of(p, x);
    linear_forward(p, p->kept, l->z, l->y2, &l->up, width, 4 * width, activation_of(p, l));
    linear_project(p, delta, activation_of(p, l), l->down.weight, 4 * width, width);
    norm_forward(p, next ? &next->norm1 : &g->last, l->x2, delta, x, l->down.bias,
                 dropout_at(p, layer, PLACE_MLP_OUT), next ? next->stats1 : g->stats, next ? next->y1 : g->y);
}

static struct device_embedding embedding_call(const struct pass *p)
{
    return (struct device_embedding){.n = p->n,
                                     .token = p->b->token,
                                     .vocab = p->g->s.vocab,
                                     .dropout = dropout_at(p, p->g->s.layers, PLACE_EMBEDDING),
                                     .kept = p->kept};
}

static void gpt_forward(const struct pass *p)
{
    struct gpt *g = p->g;
    struct gpt_layer *first = &g->layers[0];
    struct device_embedding h = embedding_call(p);
    struct device_dropout none = {0};
    model_need(p->b, first->qkv.weight);
    p->ops->embed(p->d, &h, p->params + g->wte, p->params + g->wpe, first->x1);
    norm_forward(p, &first->norm1, first->x1, NULL, first->x1, 0, none, first->stats1, first->y1);
    for (int64_t i = 0; i < g->s.layers; i++) {
        model_need(p->b, gpt_layer_end(g, i));
        gpt_attention_forward(p, i);
        mlp_block_forward(p, i);
    }
    model_need(p->b, g->base.count);
}

/* ---- head: a chunk of tokens at a time, so that their logits never exist all at once */

static const void *head_states(const struct pass *p, int64_t from)
{
    return (const char *)p->g->y + (size_t)(from * p->n.width) * device_size(p->type);
}

static void make_logits(const struct pass *p, void *logits, enum device_type type, int64_t ld, int64_t from,
                        int64_t count)
{
    struct device_product h = {.type = p->type,
                               .out = type,
                               .trans_b = true,
                               .m = count,
                               .n = ld,
                               .k = p->n.width,
                               .a = head_states(p, from),
                               .b = weight_at(p, p->g->head),
                               .c = logits};
    p->ops->product(p->d, &h);
}

static void head_back(const struct pass *p, int64_t from, int64_t count)
{
    struct gpt *g = p->g;
    int64_t width = p->n.width;
    struct device_product states = {.type = p->type,
                                    .out = p->kept,
                                    .m = count,
                                    .n = width,
                                    .k = g->logits_ld,
                                    .a = g->dlogits,
                                    .b = weight_at(p, g->head),
                                    .c = (char *)g->dy + (size_t)(from * width) * device_size(p->kept)};
    struct device_product weights = {.type = p->type,
                                     .out = DEVICE_F32,
                                     .trans_a = true,
                                     .m = g->logits_ld,
                                     .n = width,
                                     .k = count,
                                     .a = g->dlogits,
                                     .b = head_states(p, from),
                                     .beta = p->set && from == 0 ? 0.0f : 1.0f,
                                     .c = p->grads + g->head};
    /* dy (chunk,C) = dlogits W and dW (vocab,C) += dlogits^T y. W is (vocab,C). If the head has more rows than symbols,
     * the first chunk sets the gradients behind it to zero, before anything is added to them. */
    p->ops->product(p->d, &states);
    p->ops->product(p->d, &weights);
}

/* Computes the loss and, if there are grads, the gradients of the head. A row's loss is the mean over its
 * tokens. */
static void head_loss(const struct pass *p, float scale, struct device_tally *tally)
{
    struct gpt *g = p->g;
    double weight_of_token = 1.0 / (double)p->n.context;
    for (int64_t from = 0; from < p->tokens; from += g->head_rows) {
        int64_t count = p->tokens - from < g->head_rows ? p->tokens - from : g->head_rows;
        struct device_classes h = {
            .type = p->type,
            .kept = p->kept,
            .rows = count,
            .classes = g->s.vocab,
            .stride = g->logits_ld,
            .label = p->b->label + from,
            .x = g->logits,
            .dx = p->grads ? g->dlogits : NULL,
            .scale = scale * (float)weight_of_token,
            .weight = weight_of_token,
            .tally = tally,
        };
        make_logits(p, g->logits, p->kept, g->logits_ld, from, count);
        p->ops->cross_entropy(p->d, &h);
        /* The gradients are computed now, because the next chunk overwrites this chunk's dlogits. */
        if (p->grads)
            head_back(p, from, count);
    }
}

/* ---- backward */

/* Goes back through a norm. Leaves the gradient of what was added to the residual for the projection that
 * added it, whose bias is `bias`; before the first layer there is no projection, and bias is 0. */
static void norm_back(const struct pass *p, const struct gpt_norm_params *params, const float *x,
                      const float *stats, size_t bias, struct device_dropout dropped)
{
    struct gpt *g = p->g;
    struct device_norm_grad h = {
        .n = p->n,
        .dropout = dropped,
        .dy = g->dy,
        .x = x,
        .stats = stats,
        .gain = p->params + params->gain,
        .set = params == &g->last,
        .dx = g->residual_grad,
        .dgain = p->grads + params->gain,
        .dshift = p->grads + params->shift,
        .dbias = bias ? p->grads + bias : NULL,
        .type = p->type,
        .kept = p->kept,
        .ddelta = bias && g->ddelta != g->residual_grad ? g->ddelta : NULL,
    };
    p->ops->norm_grad(p->d, &h);
}

static void gradient_ready(struct pass *p, size_t from)
{
    if (p->ready)
        p->ready(p->arg, from, p->end - from);
    p->end = from;
}

/* Computes dz from ddelta, through the projection and the activation. Computes a again if it was not kept. Returns
 * whether it has computed the gradient of the bias below the activation. */
static bool activation_back(const struct pass *p, const struct gpt_layer *l, void *dz)
{
    struct gpt *g = p->g;
    struct device_activation_grad h = {
        .kind = g->s.activation,
        .type = p->type,
        .kept = p->kept,
        .rows = p->tokens,
        .in = 4 * p->n.width,
        .out = p->n.width,
        .dy = g->ddelta,
        .w = weight_at(p, l->down.weight),
        .z = l->z,
        .dz = dz,
        .a = l->a ? NULL : g->a,
    };
    if (p->ops->activation_grad && p->ops->activation_grad(p->d, &h))
        return false;
    linear_back(p, p->kept, g->wide, g->ddelta, l->down.weight, h.in, h.out);
    p->ops->bias_activate_grad(p->d, h.kind, h.type, h.kept, dz, h.a, p->grads + l->up.bias, g->wide, l->z,
                               h.rows, h.in);
    return true;
}

/* Goes from the gradient of the mlp's output to the gradient of the attention's output; both are in
 * ddelta. */
static void mlp_block_back(struct pass *p, int64_t layer)
{
    struct gpt *g = p->g;
    struct gpt_layer *l = &g->layers[layer];
    int64_t width = p->n.width;
    void *dz = p->type == p->kept ? g->wide : g->narrow;
    bool biased = activation_back(p, l, dz);
    linear_grad(p, l->down.weight, activation_of(p, l), g->ddelta, 4 * width, width);
    if (biased || !weight_and_bias_grad(p, &l->up, l->y2, dz, width, 4 * width)) {
        linear_grad(p, l->up.weight, l->y2, dz, width, 4 * width);
        if (!biased)
            p->ops->bias_grad(p->d, p->type, p->grads + l->up.bias, dz, p->tokens, 4 * width);
    }
    linear_back(p, p->kept, g->dy, dz, l->up.weight, width, 4 * width);
    norm_back(p, &l->norm2, l->x2, l->stats2, l->attention.bias, dropout_at(p, layer, PLACE_ATTENTION_OUT));
    gradient_ready(p, l->norm2.gain);
}

/* Goes from the gradient of the attention's output to the gradient of the mlp's output in the layer before;
 * both are in ddelta. */
static void gpt_attention_back(struct pass *p, int64_t layer)
{
    struct gpt *g = p->g;
    struct gpt_layer *l = &g->layers[layer];
    struct device_attention h = attention_call(p, layer);
    struct device_dropout below = {0};
    int64_t width = p->n.width;
    linear_back(p, p->attended, g->dy, g->ddelta, l->attention.weight, width, width);
    linear_grad(p, l->attention.weight, typed_input(p, l->o, width), g->ddelta, width, width);
    p->ops->attention_grad(p->d, &h, g->dy, g->wide);
    const void *dqkv = typed_input(p, g->wide, 3 * width);
    if (!weight_and_bias_grad(p, &l->qkv, l->y1, dqkv, width, 3 * width)) {
        p->ops->bias_grad(p->d, p->attended, p->grads + l->qkv.bias, g->wide, p->tokens, 3 * width);
        linear_grad(p, l->qkv.weight, l->y1, dqkv, width, 3 * width);
    }
    linear_back(p, p->kept, g->dy, dqkv, l->qkv.weight, width, 3 * width);
    if (layer > 0)
        below = dropout_at(p, layer - 1, PLACE_MLP_OUT);
    norm_back(p, &l->norm1, l->x1, l->stats1, layer > 0 ? g->layers[layer - 1].down.bias : 0, below);
    gradient_ready(p, l->norm1.gain);
}

/* Computes again, with the operations of the forward pass, what a layer's backward pass needs: everything from x1 to the
 * output of the activation. */
static void layer_recompute(const struct pass *p, int64_t layer)
{
    struct gpt_layer *l = &p->g->layers[layer];
    struct device_dropout none = {0};
    norm_forward(p, &l->norm1, l->x1, NULL, l->x1, 0, none, l->stats1, l->y1);
    gpt_attention_forward(p, layer);
    linear_forward(p, p->kept, l->z, l->y2, &l->up, p->n.width, 4 * p->n.width, activation_of(p, l));
}

static void gpt_backward(struct pass *p)
{
    struct gpt *g = p->g;
    int64_t top = g->s.layers - 1;
    struct device_embedding h = embedding_call(p);
    norm_back(p, &g->last, g->x, g->stats, g->layers[top].down.bias, dropout_at(p, top, PLACE_MLP_OUT));
    gradient_ready(p, g->last.gain);
    for (int64_t i = top; i >= 0; i--) {
        if (g->recomputes && i < top) /* the last layer's values are still there */
            layer_recompute(p, i);
        mlp_block_back(p, i);
        gpt_attention_back(p, i);
    }
    p->ops->embed_grad(p->d, &h, p->grads + g->wte, p->grads + g->wpe, g->residual_grad);
    gradient_ready(p, 0);
}

void gpt_evaluate(struct model *m, const float *params, const struct model_batch *b,
                  struct device_tally *tally)
{
    struct pass p;
    pass_init(&p, m, params, b);
    gpt_forward(&p);
    head_loss(&p, 0.0f, tally);
}

/* Before the first micro-batch of a step: sets the gradients to zero that it adds to. */
static void gradients_begin(struct pass *p)
{
    p->set = p->ops->zero_ranges != NULL;
    if (p->set)
        p->ops->zero_ranges(p->d, &p->g->added, p->grads);
    else
        p->ops->zero(p->d, p->grads, p->g->base.count * sizeof(float));
}

void gpt_train(struct model *m, const float *params, float *grads, const struct model_batch *b, float scale,
               struct device_tally *tally, model_ready_fn ready, void *arg)
{
    struct pass p;
    pass_init(&p, m, params, b);
    p.grads = grads;
    p.dropping = p.g->s.dropout > 0.0;
    p.ready = ready;
    p.arg = arg;
    BUG_ON(p.dropping && !b->sample);
    gpt_forward(&p);
    if (b->set_grads)
        gradients_begin(&p);
    head_loss(&p, scale, tally);
    gpt_backward(&p);
}

void gpt_logits(struct model *m, const float *params, const struct model_batch *b, float *logits)
{
    struct pass p;
    BUG_ON(b->rows > m->max_rows);
    pass_init(&p, m, params, b);
    gpt_forward(&p);
    make_logits(&p, logits, DEVICE_F32, p.g->s.vocab, 0, p.tokens);
}
