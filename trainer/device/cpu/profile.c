#include "trainer/device/cpu/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "trainer/device/cpu/cpu.h"

enum profile_kind {
    PROFILE_BETWEEN, /* operations: the exchange, samples, reports */
    PROFILE_FORWARD,
    PROFILE_INPUT_GRAD,
    PROFILE_WEIGHT_GRAD,
    PROFILE_ATTENTION,
    PROFILE_ATTENTION_GRAD,
    PROFILE_NORM,
    PROFILE_NORM_GRAD,
    PROFILE_ACTIVATION,
    PROFILE_ACTIVATION_GRAD,
    PROFILE_BIAS,
    PROFILE_NARROW,
    PROFILE_EMBED,
    PROFILE_LOSS,
    PROFILE_OPTIMIZER,
    PROFILE_MEMORY,
    PROFILE_KINDS
};
static const char *const profile_names[PROFILE_KINDS] = {"between operations",
                                                         "products forward",
                                                         "products dX",
                                                         "products dW",
                                                         "attention forward",
                                                         "attention backward",
                                                         "norm forward",
                                                         "norm backward",
                                                         "activation",
                                                         "activation grad",
                                                         "bias",
                                                         "narrowing",
                                                         "embedding",
                                                         "loss",
                                                         "optimizer",
                                                         "copy and zero"};

struct profile_sums {
    double seconds[PROFILE_KINDS], flops[PROFILE_KINDS];
    int64_t calls[PROFILE_KINDS];
    double process, wall; /* processor time of all threads, and time that has passed */
};
struct cpu_profile {
    char *path;
    const struct device_ops *plain;
    struct device_ops measured;
    int64_t vocab;
    bool updated;              /* since the last step began */
    int64_t steps;             /* begun */
    struct profile_sums now;   /* of this step */
    struct profile_sums total; /* of all whole steps but the first */
    enum profile_kind kind;    /* that is running */
    double since, process_since, wall_since;
};

static double profile_clock(clockid_t id)
{
    struct timespec t;
    (void)clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct cpu_profile *profile_of(struct device *d)
{
    return cpu_of(d)->profile;
}

/* Operations may call each other. The time of the inner one is not that of the outer one. */
static enum profile_kind profile_switch(struct cpu_profile *p, enum profile_kind to)
{
    const double now = profile_clock(CLOCK_THREAD_CPUTIME_ID);
    const enum profile_kind from = p->kind;
    p->now.seconds[from] += now - p->since;
    p->since = now;
    p->kind = to;
    return from;
}

static void profile_add(struct profile_sums *to, const struct profile_sums *s)
{
    for (int i = 0; i < PROFILE_KINDS; i++) {
        to->seconds[i] += s->seconds[i];
        to->flops[i] += s->flops[i];
        to->calls[i] += s->calls[i];
    }
    to->process += s->process;
    to->wall += s->wall;
}

/* A step begins with the first embedding after an update. */
static void profile_step(struct cpu_profile *p)
{
    const double process = profile_clock(CLOCK_PROCESS_CPUTIME_ID), wall = profile_clock(CLOCK_MONOTONIC);
    if (!p->updated)
        return;
    (void)profile_switch(p, p->kind);
    p->now.process = process - p->process_since;
    p->now.wall = wall - p->wall_since;
    if (p->steps++ > 0)
        profile_add(&p->total, &p->now);
    p->now = (struct profile_sums){0};
    p->process_since = process;
    p->wall_since = wall;
    p->updated = false;
}

#define MEASURED(d, to, call)                                                                                \
    do {                                                                                                     \
        struct cpu_profile *p_ = profile_of(d);                                                              \
        const enum profile_kind to_ = (to), from_ = profile_switch(p_, to_);                                 \
        p_->now.calls[to_]++;                                                                                \
        p_->plain->call;                                                                                     \
        (void)profile_switch(p_, from_);                                                                     \
    } while (0)

/* A product that transposes its left factor makes the gradient of weights, and one that transposes its right factor
 * that of inputs. The head is tied to the embedding, so its forward product transposes and its gradient does not. */
static enum profile_kind product_kind(const struct cpu_profile *p, const struct device_product *h)
{
    if (h->trans_a)
        return PROFILE_WEIGHT_GRAD;
    if (h->trans_b)
        return h->n == p->vocab ? PROFILE_FORWARD : PROFILE_INPUT_GRAD;
    return h->k == p->vocab ? PROFILE_INPUT_GRAD : PROFILE_FORWARD;
}

static void profiled_product(struct device *d, const struct device_product *h)
{
    const enum profile_kind kind = product_kind(profile_of(d), h);
    profile_of(d)->now.flops[kind] += 2.0 * (double)h->m * (double)h->n * (double)h->k;
    MEASURED(d, kind, product(d, h));
}
static void profiled_linear(struct device *d, const struct device_linear *h)
{
    const bool whole = h->kept == DEVICE_BF16; /* the product adds the bias */
    if (whole)
        profile_of(d)->now.flops[PROFILE_FORWARD] += 2.0 * (double)h->rows * (double)h->in * (double)h->out;
    MEASURED(d, whole ? PROFILE_FORWARD : h->a ? PROFILE_ACTIVATION : PROFILE_BIAS, linear(d, h));
}
static void profiled_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    MEASURED(d, PROFILE_MEMORY, copy(d, to, from, bytes));
}
static void profiled_zero(struct device *d, void *to, size_t bytes)
{
    MEASURED(d, PROFILE_MEMORY, zero(d, to, bytes));
}
static void profiled_narrow(struct device *d, void *bf16, const float *x, size_t n)
{
    MEASURED(d, PROFILE_NARROW, narrow(d, bf16, x, n));
}
static void profiled_bias_grad(struct device *d, enum device_type type, float *db, const void *dy,
                               int64_t rows, int64_t cols)
{
    MEASURED(d, PROFILE_BIAS, bias_grad(d, type, db, dy, rows, cols));
}
static void profiled_bias_activate_grad(struct device *d, enum device_activation kind, enum device_type type,
                                        enum device_type kept, void *dz, void *a, float *dbias,
                                        const void *da, const void *z, int64_t rows, int64_t cols)
{
    MEASURED(d, PROFILE_ACTIVATION_GRAD,
             bias_activate_grad(d, kind, type, kept, dz, a, dbias, da, z, rows, cols));
}
static void profiled_embed(struct device *d, const struct device_embedding *h, const float *wte,
                           const float *wpe, float *x)
{
    profile_step(profile_of(d));
    MEASURED(d, PROFILE_EMBED, embed(d, h, wte, wpe, x));
}
static void profiled_embed_grad(struct device *d, const struct device_embedding *h, float *dwte, float *dwpe,
                                void *dx)
{
    MEASURED(d, PROFILE_EMBED, embed_grad(d, h, dwte, dwpe, dx));
}
static void profiled_norm(struct device *d, const struct device_norm *h)
{
    MEASURED(d, PROFILE_NORM, norm(d, h));
}
static void profiled_norm_grad(struct device *d, const struct device_norm_grad *h)
{
    MEASURED(d, PROFILE_NORM_GRAD, norm_grad(d, h));
}
static void profiled_attention(struct device *d, const struct device_attention *h)
{
    MEASURED(d, PROFILE_ATTENTION, attention(d, h));
}
static void profiled_attention_grad(struct device *d, const struct device_attention *h, const void *d_o,
                                    void *dqkv)
{
    MEASURED(d, PROFILE_ATTENTION_GRAD, attention_grad(d, h, d_o, dqkv));
}
static enum err_code profiled_reserve(struct device *d, const struct device_sizes *sizes, struct err *e)
{
    profile_of(d)->vocab = sizes->vocab;
    return profile_of(d)->plain->reserve(d, sizes, e);
}
static void profiled_cross_entropy(struct device *d, const struct device_classes *h)
{
    MEASURED(d, PROFILE_LOSS, cross_entropy(d, h));
}
static void profiled_sum_squares(struct device *d, const float *x, size_t n, double *out)
{
    MEASURED(d, PROFILE_OPTIMIZER, sum_squares(d, x, n, out));
}
static void profiled_scale(struct device *d, float *x, size_t n, float by)
{
    MEASURED(d, PROFILE_OPTIMIZER, scale(d, x, n, by));
}
static void profiled_sgd(struct device *d, const struct device_sgd *h, float *p, const float *g, float *v,
                         size_t n)
{
    profile_of(d)->updated = true;
    MEASURED(d, PROFILE_OPTIMIZER, sgd(d, h, p, g, v, n));
}
static void profiled_adamw(struct device *d, const struct device_adamw *h, float *p, const float *g, float *m,
                           float *v, size_t n)
{
    profile_of(d)->updated = true;
    MEASURED(d, PROFILE_OPTIMIZER, adamw(d, h, p, g, m, v, n));
}
static void profiled_adamw_ranges(struct device *d, const struct device_adamw *h,
                                  const struct device_ranges *ranges, float *p, const float *g, float *m,
                                  float *v, void *narrowed)
{
    profile_of(d)->updated = true;
    MEASURED(d, PROFILE_OPTIMIZER, adamw_ranges(d, h, ranges, p, g, m, v, narrowed));
}
static void profiled_zero_ranges(struct device *d, const struct device_ranges *ranges, float *x)
{
    MEASURED(d, PROFILE_MEMORY, zero_ranges(d, ranges, x));
}
static void profiled_muon(struct device *d, const struct device_muon *h, float *p, const float *g, float *m)
{
    profile_of(d)->updated = true;
    MEASURED(d, PROFILE_OPTIMIZER, muon(d, h, p, g, m));
}

struct cpu_profile *cpu_profile_open(struct device *d)
{
    const char *path = getenv("DDP_CPU_PROFILE");
    if (!path || !path[0])
        return NULL;
    struct cpu_profile *p = xcalloc(1, sizeof(*p));
    struct device_ops *m = &p->measured;
    p->path = xasprintf("%s.%ld", path, (long)getpid());
    p->plain = d->ops;
    *m = *d->ops;
    m->product = profiled_product;
    m->linear = profiled_linear;
    m->copy = profiled_copy;
    m->zero = profiled_zero;
    m->narrow = profiled_narrow;
    m->bias_grad = profiled_bias_grad;
    m->bias_activate_grad = profiled_bias_activate_grad;
    m->embed = profiled_embed;
    m->embed_grad = profiled_embed_grad;
    m->norm = profiled_norm;
    m->norm_grad = profiled_norm_grad;
    m->attention = profiled_attention;
    m->attention_grad = profiled_attention_grad;
    m->reserve = profiled_reserve;
    m->cross_entropy = profiled_cross_entropy;
    m->sum_squares = profiled_sum_squares;
    m->scale = profiled_scale;
    m->sgd = profiled_sgd;
    m->adamw = profiled_adamw;
    m->muon = profiled_muon;
    if (m->adamw_ranges)
        m->adamw_ranges = profiled_adamw_ranges;
    if (m->zero_ranges)
        m->zero_ranges = profiled_zero_ranges;
    d->ops = m;
    return p;
}

static bool profile_write(const struct cpu_profile *p)
{
    const struct profile_sums *t = &p->total;
    const int64_t steps = p->steps > 1 ? p->steps - 1 : 0;
    struct rusage usage = {0};
    double own = 0.0;
    FILE *f = fopen(p->path, "w");
    if (!f)
        return false;
    for (int i = 0; i < PROFILE_KINDS; i++) {
        own += t->seconds[i];
        (void)fprintf(f, "{\"kind\": \"%s\", \"calls\": %lld, \"seconds\": %.6f, \"flops\": %.0f}\n",
                      profile_names[i], (long long)t->calls[i], t->seconds[i], t->flops[i]);
    }
    (void)fprintf(f, "{\"kind\": \"other threads\", \"calls\": 0, \"seconds\": %.6f, \"flops\": 0}\n",
                  t->process > own ? t->process - own : 0.0);
    (void)getrusage(RUSAGE_SELF, &usage);
    /* the last line shows that the file is whole */
    bool ok = fprintf(f, "{\"steps\": %lld, \"wall\": %.6f, \"process\": %.6f, \"memory\": %lld}\n",
                      (long long)steps, t->wall, t->process, (long long)usage.ru_maxrss * 1024) > 0;
    return fclose(f) == 0 && ok;
}

void cpu_profile_close(struct cpu_profile *p)
{
    if (!p)
        return;
    if (!profile_write(p))
        log_warn("profile_not_written", "path=%s", LOG_Q(p->path));
    free(p->path);
    free(p);
}
