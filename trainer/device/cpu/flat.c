#include "trainer/device/cpu/flat.h"

#include <math.h>
#include <string.h>

#include "trainer/device/cpu/muon.h"
#include "trainer/device/cpu/work.h"

/* ---- bytes */

#define BYTES_ALONE                                                                                          \
    ((size_t)1 << 20) /* that one thread copies in less time than it takes to wake the others */

struct bytes {
    char *to;
    const char *from; /* NULL: zeros */
    size_t count, each;
};

static void bytes_part(void *arg, int64_t part, int thread)
{
    const struct bytes *b = arg;
    const size_t at = (size_t)part * b->each, n = b->count - at < b->each ? b->count - at : b->each;
    (void)thread;
    if (b->from)
        memcpy(b->to + at, b->from + at, n);
    else
        memset(b->to + at, 0, n);
}

/* One long piece for each thread: memcpy and memset of the C library write long pieces past the cache. */
static void bytes_run(struct device *d, struct bytes *b)
{
    const struct cpu_threads *t = &cpu_of(d)->threads;
    const size_t parts = b->count < BYTES_ALONE ? 1 : (size_t)t->count;
    b->each = (b->count / parts + 4095) / 4096 * 4096;
    if (b->count > 0)
        cpu_threads_run(t, (int64_t)((b->count + b->each - 1) / b->each), bytes_part, b);
}

void flat_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    struct bytes b = {.to = to, .from = from, .count = bytes};
    if (to != from)
        bytes_run(d, &b);
}

void flat_zero(struct device *d, void *to, size_t bytes)
{
    struct bytes b = {.to = to, .count = bytes};
    bytes_run(d, &b);
}

/* ---- flat arrays */

static void sum_squares_part(void *arg, int64_t part, int thread)
{
    struct cpu_work *w = arg;
    (void)thread;
    w->sums[part] = w->k->sum_squares(w->x + (size_t)part * CPU_FLAT_PART, flat_part_count(w->n, part));
}

void flat_sum_squares(struct device *d, const float *x, size_t n, double *out)
{
    struct cpu_work w = {.x = x, .n = n};
    w.sums = cpu_scratch(cpu_of(d), (size_t)flat_parts(n) * sizeof(double));
    if (!w.sums)
        return;
    work_run(d, &w, flat_parts(n), sum_squares_part);
    *out = 0.0;
    for (int64_t i = 0; i < flat_parts(n); i++)
        *out += w.sums[i];
}

void flat_clip_scale(struct device *d, float *scale, const double *squares, double clip)
{
    double by = clip / (sqrt(*squares) + 1e-6);
    (void)d;
    *scale = (float)(by < 1.0 ? by : 1.0);
}

static void scale_part(void *arg, int64_t part, int thread)
{
    struct cpu_work *w = arg;
    (void)thread;
    w->k->scale(w->to + (size_t)part * CPU_FLAT_PART, flat_part_count(w->n, part), w->scale);
}

void flat_scale(struct device *d, float *x, size_t n, float by)
{
    struct cpu_work w = {.to = x, .n = n, .scale = by};
    work_run(d, &w, flat_parts(n), scale_part);
}

static void add_part(void *arg, int64_t part, int thread)
{
    struct cpu_work *w = arg;
    size_t from = (size_t)part * CPU_FLAT_PART;
    (void)thread;
    w->k->bias(w->to + from, w->x + from, 1, (int64_t)flat_part_count(w->n, part));
}

void flat_add(struct device *d, float *y, const float *x, size_t n)
{
    struct cpu_work w = {.to = y, .x = x, .n = n};
    work_run(d, &w, flat_parts(n), add_part);
}

/* ---- optimizers */

static void sgd_part(void *arg, int64_t part, int thread)
{
    struct cpu_work *w = arg;
    size_t from = (size_t)part * CPU_FLAT_PART;
    (void)thread;
    w->k->sgd(w->h, w->to + from, w->x + from, w->v ? w->v + from : NULL, w->narrow ? w->narrow + from : NULL,
              flat_part_count(w->n, part));
}

void flat_sgd(struct device *d, const struct device_sgd *h, float *p, const float *g, float *v, size_t n)
{
    struct cpu_work w = {.h = h, .to = p, .x = g, .v = v, .narrow = h->narrowed, .n = n};
    work_run(d, &w, flat_parts(n), sgd_part);
}

static void adamw_part(void *arg, int64_t part, int thread)
{
    struct cpu_work *w = arg;
    size_t from = (size_t)part * CPU_FLAT_PART;
    (void)thread;
    w->k->adamw(w->h, w->to + from, w->x + from, w->m + from, w->v + from,
                w->narrow ? w->narrow + from : NULL, flat_part_count(w->n, part));
}

void flat_adamw(struct device *d, const struct device_adamw *h, float *p, const float *g, float *m, float *v,
                size_t n)
{
    struct cpu_work w = {.h = h, .to = p, .x = g, .m = m, .v = v, .narrow = h->narrowed, .n = n};
    work_run(d, &w, flat_parts(n), adamw_part);
}

/* Each matrix is one thread's, so the bits do not depend on how many there are. Threads take matrices in turn. */
static size_t muon_floats(const struct device_muon *h)
{
    size_t most = 0;
    for (size_t i = 0; i < h->count; i++)
        most = cpu_muon_floats(&h->matrices[i]) > most ? cpu_muon_floats(&h->matrices[i]) : most;
    return most;
}

size_t flat_muon_bytes(const struct device *d, const struct device_muon *h)
{
    const struct cpu_device *c = (const struct cpu_device *)(const void *)d;
    size_t threads = (size_t)c->threads.count;
    return (threads < h->count ? threads : h->count) * muon_floats(h) * sizeof(float);
}

static void muon_part(void *arg, int64_t part, int thread)
{
    struct cpu_work *w = arg;
    const struct device_muon *h = w->h;
    w->muon->update(h, &h->matrices[part], w->to, w->x, w->m, (float *)h->room + (size_t)thread * w->n);
}

void flat_muon(struct device *d, const struct device_muon *h, float *p, const float *g, float *m)
{
    struct cpu_work w = {.h = h, .muon = cpu_of(d)->set.muon, .to = p, .x = g, .m = m, .n = muon_floats(h)};
    work_run(d, &w, (int64_t)h->count, muon_part);
}
