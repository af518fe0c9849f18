/* GPT: the layout of its tensors and activations, and its initial parameters. */
#include "trainer/model/gpt.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/random.h"
#include "base/topology.h"
#include "trainer/model/gpt_internal.h"

/* Bytes. Products choose their algorithm by the alignment of matrices, up to 256. With it, all layers use the same ones, and
 * layers that are computed again get the same bits. */
#define ALIGN 256
/* Bytes of one chunk of logits: small enough for the cache, large enough for fast products. */
#define LOGITS_BYTES 48e6
/* The same on a device with its own memory: enough rows to keep it busy, and up to LOGITS_MOST if memory is left. As many
 * bf16 are fewer than 2^31, which every library can count. */
#define LOGITS_LEAST ((size_t)1000000000)
#define LOGITS_MOST ((size_t)4000000000)
#define INIT_THREADS 16
#define INIT_ALONE 4000000 /* below this, one thread initializes all parameters */
#define LOGITS_LINE 64     /* elements; on such a device, rows of logits are padded to whole lines */

static void gpt_free(struct model *m)
{
    struct gpt *g = gpt_of(m);
    m->device->ops->free(m->device, m->activations);
    m->device->ops->free(m->device, m->narrowed);
    device_ranges_close(&g->added, m->device);
    free(g->layers);
    free(m->tensors);
    free(m);
}

/* ---- tensors */

static size_t tensor_add(struct model *m, const char *prefix, const char *name, int64_t rows, int64_t cols)
{
    struct model_tensor *t = &m->tensors[m->tensor_count++];
    int length = snprintf(t->name, sizeof(t->name), "%s%s", prefix, name);

    BUG_ON(length >= (int)sizeof(t->name));
    t->dims = cols ? 2 : 1;
    t->shape[0] = rows;
    t->shape[1] = cols ? cols : 1;
    t->offset = m->count;
    t->count = (size_t)(rows * (cols ? cols : 1));
    t->decay = cols != 0;
    m->count += (t->count + 15) / 16 * 16;
    m->parameters += t->count;
    return t->offset;
}

/* Adds the two tensors of a norm, in the order in which they lie in memory. */
static struct gpt_norm_params tensor_add_norm(struct model *m, const char *prefix, const char *name,
                                              int64_t width)
{
    struct gpt_norm_params p;
    char full[32];
    snprintf(full, sizeof(full), "%s.weight", name);
    p.gain = tensor_add(m, prefix, full, width, 0);
    snprintf(full, sizeof(full), "%s.bias", name);
    p.shift = tensor_add(m, prefix, full, width, 0);
    return p;
}

static struct gpt_linear_params tensor_add_linear(struct model *m, const char *prefix, const char *name,
                                                  int64_t in, int64_t out, int matrices)
{
    struct gpt_linear_params p;
    char full[32];
    snprintf(full, sizeof(full), "%s.weight", name);
    p.weight = tensor_add(m, prefix, full, in, out);
    m->tensors[m->tensor_count - 1].matrices = matrices;
    m->tensors[m->tensor_count - 1].narrow_only = true;
    snprintf(full, sizeof(full), "%s.bias", name);
    p.bias = tensor_add(m, prefix, full, out, 0);
    return p;
}

static void gpt_lay_out_tensors(struct gpt *g)
{
    struct model *m = &g->base;
    int64_t width = g->s.width;
    m->tensors = xcalloc((size_t)(12 * g->s.layers + 5), sizeof(*m->tensors));
    g->wte = tensor_add(m, "transformer.", "wte.weight", g->s.vocab, width);
    g->wpe = tensor_add(m, "transformer.", "wpe.weight", g->s.context, width);
    for (int64_t i = 0; i < g->s.layers; i++) {
        struct gpt_layer *l = &g->layers[i];
        char prefix[40];
        snprintf(prefix, sizeof(prefix), "transformer.h.%lld.", (long long)i);
        l->norm1 = tensor_add_norm(m, prefix, "ln_1", width);
        l->qkv = tensor_add_linear(m, prefix, "attn.c_attn", width, 3 * width, 3);
        l->attention = tensor_add_linear(m, prefix, "attn.c_proj", width, width, 1);
        l->norm2 = tensor_add_norm(m, prefix, "ln_2", width);
        l->up = tensor_add_linear(m, prefix, "mlp.c_fc", width, 4 * width, 1);
        l->down = tensor_add_linear(m, prefix, "mlp.c_proj", 4 * width, width, 1);
    }
    g->last = tensor_add_norm(m, "transformer.", "ln_f", width);
    g->head = g->wte;
    if (g->s.tied)
        return;
    g->head = tensor_add(m, "", "lm_head.weight", g->s.vocab, width);
    m->tensors[m->tensor_count - 1].narrow_only = true;
}

/* ---- activations: one allocation; the first walk only adds up */

struct walk {
    char *start;
    size_t at;
};

static void *walk_take(struct walk *w, int64_t count, enum device_type type)
{
    size_t from = w->at;
    w->at += ((size_t)count * device_size(type) + ALIGN - 1) / ALIGN * ALIGN;
    return w->start ? w->start + from : NULL;
}

/* Places what lies between a layer's input and its output. */
static void place_layer(struct gpt *g, struct gpt_layer *l, struct walk *w, int64_t n)
{
    int64_t width = g->s.width;
    l->stats1 = walk_take(w, 2 * n, DEVICE_F32);
    l->y1 = walk_take(w, n * width, g->s.type);
    l->qkv_out = walk_take(w, 3 * n * width, g->attended);
    l->o = walk_take(w, n * width, g->attended);
    l->lse = walk_take(w, n * g->s.heads, DEVICE_F32);
    l->x2 = walk_take(w, n * width, DEVICE_F32);
    l->stats2 = walk_take(w, 2 * n, DEVICE_F32);
    l->y2 = walk_take(w, n * width, g->s.type);
    l->z = walk_take(w, 4 * n * width, g->kept);
    l->a = g->keeps ? walk_take(w, 4 * n * width, g->s.type) : NULL;
}

static void place_activations(struct gpt *g, struct walk *w)
{
    int64_t n = g->base.max_rows * g->s.context, width = g->s.width;
    enum device_type type = g->s.type, kept = g->kept;
    for (int64_t i = 0; i < g->s.layers; i++)
        g->layers[i].x1 = walk_take(w, n * width, DEVICE_F32);
    size_t first = w->at;
    for (int64_t i = 0; i < g->s.layers; i++) {
        w->at = g->recomputes ? first : w->at;
        place_layer(g, &g->layers[i], w, n);
    }
    g->x = walk_take(w, n * width, DEVICE_F32);
    g->stats = walk_take(w, 2 * n, DEVICE_F32);
    g->y = walk_take(w, n * width, type);
    g->a = g->keeps ? NULL : walk_take(w, 4 * n * width, type);
    g->delta = kept != DEVICE_F32 ? walk_take(w, n * width, kept) : NULL;
    g->wide = walk_take(w, 4 * n * width, kept);
    g->residual_grad = walk_take(w, n * width, kept);
    g->dy = walk_take(w, n * width, kept);
    g->ddelta = type != kept || g->s.dropout > 0.0 ? walk_take(w, n * width, type) : g->residual_grad;
    g->narrow = type != kept ? walk_take(w, 4 * n * width, type) : NULL;
    g->logits = walk_take(w, g->head_rows * g->logits_ld, kept);
    g->dlogits = type != kept ? walk_take(w, g->head_rows * g->logits_ld, type) : g->logits;
}

/* Chooses the length of a row of logits. If a row is not a whole number of lines, its address makes products
 * slow on some devices. On these, the row is made longer, and the head is used as if it had more symbols: the
 * additional rows of the matrix are whatever parameters follow it in the array. Their logits are ignored, and
 * their gradients are zero (device.h, device_classes). */
static int64_t choose_logits_ld(const struct gpt *g)
{
    int64_t longer = (g->s.vocab + LOGITS_LINE - 1) / LOGITS_LINE * LOGITS_LINE;
    if (g->base.device->host || g->head + (size_t)(longer * g->s.width) > g->base.count)
        return g->s.vocab;
    return longer;
}

/* Divides the tokens into equal chunks, whose logits need at most so many bytes. */
static int64_t choose_head_rows(const struct gpt *g, double bytes)
{
    int64_t n = g->base.max_rows * g->s.context;
    int64_t most = (int64_t)(bytes / ((double)device_size(g->kept) * (double)g->logits_ld)) / 16 * 16;
    most = most < 16 ? 16 : most;
    int64_t chunks = (n + most - 1) / most, rows = ((n + chunks - 1) / chunks + 15) / 16 * 16;
    return rows < n ? rows : n;
}

/* The memory that training needs with the present layout: activations, parameters, gradients and two moments, the arrays
 * of a strategy that averages, the bf16 weights, and what libraries need. */
static size_t memory_needed(struct gpt *g)
{
    const struct model *m = &g->base;
    struct walk all = {0};
    place_activations(g, &all);
    const double state = (double)m->count * model_state_bytes(4 + g->s.extra_arrays, true);
    return all.at + (size_t)state + GPT_LIBRARY_BYTES;
}

size_t gpt_logits_bytes(size_t memory, size_t needed)
{
    size_t left = memory > needed ? memory - needed : 0;
    return left / 2 < LOGITS_MOST - LOGITS_LEAST ? LOGITS_LEAST + left / 2 : LOGITS_MOST;
}

/* Decides how memory is used that need not be used. First the outputs of all activation functions are kept for backward,
 * which otherwise computes them again from z; then the chunks of logits grow. Both depend on the size of the device's
 * memory, not on how much is free, because they change the lowest bits: GPUs of one kind do the same, even after a
 * restart. If layers are computed again, both are still chosen as if they were not, so that the bits are the same; unless
 * the memory is too small for that. */
static void spend_memory(struct gpt *g)
{
    const struct device *d = g->base.device;
    g->logits_ld = choose_logits_ld(g);
    g->head_rows = choose_head_rows(g, d->host ? LOGITS_BYTES : (double)LOGITS_LEAST);
    g->recomputes = false;
    g->keeps = true;
    g->keeps = memory_needed(g) <= d->memory;
    if (g->s.recompute && memory_needed(g) > d->memory) {
        g->recomputes = g->keeps = true;
        g->keeps = memory_needed(g) <= d->memory;
    }
    if (!d->host)
        g->head_rows = choose_head_rows(
            g, (double)(d->logits_bytes ? d->logits_bytes : gpt_logits_bytes(d->memory, memory_needed(g))));
    g->recomputes = g->s.recompute;
}

/* Collects what lies between the gradients that products set: those of the matrices and the head. */
static enum err_code open_added(struct gpt *g, struct err *e)
{
    const struct model *m = &g->base;
    struct device_range *items = xcalloc(m->tensor_count + 1, sizeof(*items));
    size_t count = 0, from = 0;
    for (size_t i = 0; i <= m->tensor_count; i++) {
        const struct model_tensor *t = i < m->tensor_count ? &m->tensors[i] : NULL;
        if (t && t->matrices == 0 && t->offset != g->head)
            continue;
        size_t end = t ? t->offset : m->count;
        if (end > from)
            items[count++] = (struct device_range){.offset = from, .count = end - from};
        from = t ? t->offset + t->count : end;
    }
    enum err_code code = device_ranges_open(&g->added, m->device, items, count, e);
    free(items);
    return code;
}

/* Adds to an error about missing memory how much less memory layers need that are computed again. */
static enum err_code suggest_recompute(struct gpt *g, struct err *e)
{
    struct err why = *e;
    struct walk again = {0};
    if (e->code != ERR_RESOURCE_EXHAUSTED || g->s.recompute)
        return e->code;
    g->recomputes = true;
    place_activations(g, &again);
    return err_set(e, why.code, "%.300s; with 'recompute: block' they need %zu bytes", why.msg, again.at);
}

static enum err_code gpt_alloc_activations(struct gpt *g, struct err *e)
{
    struct model *m = &g->base;
    struct walk count = {0}, real = {0};
    void *memory = NULL;
    spend_memory(g);
    /* The layout runs twice: first to find the size, then to assign the memory. */
    place_activations(g, &count);
    m->activation_bytes = count.at;
    if (device_alloc(m->device, m->activation_bytes, "activations", &memory, e))
        return suggest_recompute(g, e);
    m->activations = memory;
    real.start = memory;
    place_activations(g, &real);
    struct device_sizes sizes = {.n = {m->max_rows, g->s.context, g->s.width},
                                 .heads = g->s.heads,
                                 .vocab = g->s.vocab,
                                 .head_rows = g->head_rows,
                                 .type = g->s.type,
                                 .dropout = g->s.dropout > 0.0};
    if (m->device->ops->reserve(m->device, &sizes, e))
        return e->code;
    const size_t before = m->device->bytes;
    if (g->s.type == DEVICE_BF16 &&
        device_alloc(m->device, m->count * device_size(DEVICE_BF16), "bf16 weights", &m->narrowed, e))
        return e->code;
    m->narrowed_bytes = m->device->bytes - before;
    return m->device->ops->zero_ranges ? open_added(g, e) : ERR_OK;
}

/* ---- initial parameters */

/* Draws normally distributed numbers as the ratio of two uniform numbers, with Knuth's quick tests (The Art
 * of Computer Programming, volume 2, 3.4.1, algorithm R). The library's logarithm only accepts or rejects a
 * few tries and does not enter any result, so the numbers are the same on every machine. Each try takes two
 * numbers of the stream, whether it is accepted or not. Therefore a row of tries is computed at once, without
 * a branch, and rejected tries are overwritten. */
#define TRIES 128
struct tries {
    double u[TRIES], x[TRIES];
    uint8_t good[TRIES], open[TRIES]; /* results of the quick tests; open: the logarithm must decide */
};

static void try_some(struct tries *t, struct random *r)
{
    for (size_t i = 0; i < TRIES; i++) {
        t->u[i] = (double)(int64_t)((random_u64(r) >> 11) + 1) * 0x1p-53;
        t->x[i] = (double)(int64_t)(random_u64(r) >> 11) * 0x1p-53 - 0.5;
    }
    for (size_t i = 0; i < TRIES; i++) {
        double u = t->u[i], x = 1.7155277699214135 * t->x[i] / u, square = x * x; /* sqrt(8 / e) */
        t->x[i] = x;
        t->good[i] = square <= 5.0 - 5.136101666750967 * u;                /* 4 e^(1/4) */
        t->open[i] = !t->good[i] & (square < 1.036961042583566 / u + 1.4); /* 4 e^-1.35 */
    }
}

static void fill_normal(float *to, size_t count, double deviation, uint64_t seed, size_t tensor)
{
    struct random r = random_stream(seed, tensor);
    struct tries t;
    for (size_t n = 0; n < count;) {
        try_some(&t, &r);
        for (size_t i = 0; i < TRIES && n < count; i++) {
            double x = t.x[i];
            to[n] = (float)(deviation * x);
            n += t.open[i] ? x * x <= -4.0 * log(t.u[i]) : t.good[i];
        }
    }
}

static bool ends_in_residual(const struct gpt *g, size_t offset)
{
    for (int64_t i = 0; i < g->s.layers; i++)
        if (offset == g->layers[i].attention.weight || offset == g->layers[i].down.weight)
            return true;
    return false;
}

static bool is_gain(const struct gpt *g, size_t offset)
{
    for (int64_t i = 0; i < g->s.layers; i++)
        if (offset == g->layers[i].norm1.gain || offset == g->layers[i].norm2.gain)
            return true;
    return offset == g->last.gain;
}

/* The threads of gpt_init take one tensor after the other. Each tensor has a random stream of its own, so the parameters do not
 * depend on the number of threads. */
struct init {
    const struct model *m;
    float *host; /* (m->count), zero */
    double residual;
    uint64_t seed;
    atomic_size_t next;
};

static void *init_tensors(void *arg)
{
    struct init *w = arg;
    const struct gpt *g = gpt_of((struct model *)(uintptr_t)w->m);
    for (size_t i; (i = atomic_fetch_add(&w->next, 1)) < w->m->tensor_count;) {
        const struct model_tensor *t = &w->m->tensors[i];
        if (t->dims == 2)
            fill_normal(w->host + t->offset, t->count, ends_in_residual(g, t->offset) ? w->residual : 0.02,
                        w->seed, i);
        else
            for (size_t j = 0; j < t->count; j++)
                w->host[t->offset + j] = is_gain(g, t->offset) ? 1.0f : 0.0f;
    }
    return NULL;
}

static void gpt_init(const struct model *m, float *params, uint64_t seed)
{
    const struct gpt *g = gpt_of((struct model *)(uintptr_t)m);
    struct init w = {
        .m = m, .host = m->device->host ? params : xcalloc(m->count, sizeof(float)), .seed = seed};
    pthread_t threads[INIT_THREADS - 1];
    sigset_t all, before;
    int count = 0, wanted = m->device->host ? m->device->threads : topology_allowed();
    w.residual = 0.02 / sqrt(2.0 * (double)g->s.layers);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the threads of the program */
    wanted = m->count < INIT_ALONE ? 1 : wanted < INIT_THREADS ? wanted : INIT_THREADS;
    while (count < wanted - 1 && !pthread_create(&threads[count], NULL, init_tensors, &w))
        count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    init_tensors(&w); /* it also does the work of threads that could not be started */
    while (count > 0)
        pthread_join(threads[--count], NULL);
    if (w.host == params)
        return;
    m->device->ops->upload(m->device, params, w.host, m->count * sizeof(float));
    free(w.host);
}

static double gpt_flops(const struct model *m, int64_t rows)
{
    const struct gpt *g = gpt_of((struct model *)(uintptr_t)m);
    double width = (double)g->s.width, layers = (double)g->s.layers, context = (double)g->s.context;
    double weights = 12.0 * layers * width * width + (double)g->s.vocab * width;
    return (6.0 * weights + 6.0 * layers * context * width) * context * (double)rows;
}

/* The embeddings, of each layer the attention and the MLP, and the head. */
static size_t gpt_units(const struct model *m, struct model_unit *out)
{
    const struct gpt *g = gpt_of((struct model *)(uintptr_t)m);
    const double width = (double)g->s.width;
    size_t count = 0;
    if (!out)
        return 2 * (size_t)g->s.layers + 2;
    out[count++] = (struct model_unit){.need = g->layers[0].qkv.weight};
    for (int64_t i = 0; i < g->s.layers; i++) {
        const struct gpt_layer *l = &g->layers[i];
        const size_t need = gpt_layer_end(g, i);
        out[count++] = (struct model_unit){l->norm1.gain, need, width * (4 * width + (double)g->s.context)};
        out[count++] = (struct model_unit){l->norm2.gain, need, width * 8 * width};
    }
    out[count++] = (struct model_unit){g->last.gain, m->count, width * (double)g->s.vocab};
    return count;
}

static const struct model_ops gpt_ops = {
    .free = gpt_free,
    .init = gpt_init,
    .evaluate = gpt_evaluate,
    .train = gpt_train,
    .flops = gpt_flops,
    .units = gpt_units,
};

enum err_code gpt_open(struct model **out, const struct gpt_shape *shape, int64_t max_rows,
                       struct device *device, struct err *e)
{
    if (shape->heads < 1 || shape->width % shape->heads)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "invalid value for 'model.width': expected a multiple of model.heads (%lld), got %lld",
                       (long long)shape->heads, (long long)shape->width);
    struct gpt *g = xcalloc(1, sizeof(*g));
    g->s = *shape;
    g->kept = device_kept(device, shape->type);
    g->attended = device_attended(device, shape->type);
    g->layers = xcalloc((size_t)shape->layers, sizeof(*g->layers));
    g->base = (struct model){.ops = &gpt_ops, .device = device, .max_rows = max_rows};
    g->base.in = shape->context;
    g->base.out = shape->vocab;
    gpt_lay_out_tensors(g);
    if (gpt_alloc_activations(g, e)) {
        gpt_free(&g->base);
        return e->code;
    }
    *out = &g->base;
    return ERR_OK;
}
