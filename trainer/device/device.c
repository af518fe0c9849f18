#include "trainer/device/device.h"

#include <time.h>

#include "base/clock.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/plugin.h"

enum err_code device_open(struct device **out, enum device_kind kind, int local_rank, int local_ranks,
                          int threads, struct err *e)
{
    const struct plugin *plugin = NULL;
    if (kind == DEVICE_CPU)
        return cpu_open(out, local_rank, local_ranks, threads, e);
    return plugin_load(&plugin, e) ? e->code : plugin->open(out, e);
}

/* A CPU's run is a millisecond or two on one core, whatever the number of threads: long enough for what a
 * call costs not to show, short enough for some run to pass undisturbed where cores are shared. The best
 * counts. Other devices get sides that double until a run takes as long, and several runs between two waits.
 */
#define PEAK_ROWS 256 /* a thread */
#define PEAK_SIDE 768
#define PEAK_LEAST 4 /* runs */
#define PEAK_NS 40000000
#define PEAK_AWAY_SIDE 256 /* the first, and the last */
#define PEAK_AWAY_LAST 8192
#define PEAK_AWAY_NS 1000000
#define PEAK_AWAY_RUNS 8

/* (rows,side) times (side,side), `runs` times before each wait. */
struct peak {
    enum device_type type;
    int64_t rows, side;
    int runs;
};

/* One thread's time is that of its core: neighbours do not count. Threads that wait for each other, and for
 * what is no CPU, have only the clock on the wall. */
static int64_t now_ns(const struct device *d)
{
    struct timespec t;
    if (d->threads > 1 || !d->host)
        return clock_mono_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static enum err_code best_run(struct device *d, const struct peak *p, const struct device_product *h,
                              int64_t *best, struct err *e)
{
    int64_t began = now_ns(d), now = began;
    *best = INT64_MAX;
    for (int i = 0; i < PEAK_LEAST || now - began < PEAK_NS; i++) {
        int64_t from = now;
        for (int r = 0; r < p->runs; r++)
            d->ops->product(d, h);
        if (d->ops->wait(d, e))
            return e->code;
        now = now_ns(d);
        *best = (now - from) / p->runs < *best ? (now - from) / p->runs : *best;
    }
    return ERR_OK;
}

/* *best: nanoseconds of one product */
static enum err_code peak_run(struct device *d, const struct peak *p, int64_t *best, struct err *e)
{
    size_t left = (size_t)(p->rows * p->side), right = (size_t)(p->side * p->side);
    void *memory = NULL;
    if (device_alloc(d, (left + right) * device_size(p->type) + left * sizeof(float),
                     "factors to measure the peak with", &memory, e))
        return e->code;
    struct device_product h = {.type = p->type, .m = p->rows, .n = p->side, .k = p->side, .a = memory};
    h.b = (char *)memory + left * device_size(p->type);
    h.c = (char *)memory + (left + right) * device_size(p->type);
    enum err_code code = best_run(d, p, &h, best, e);
    d->ops->free(d, memory);
    return code ? e->code : ERR_OK;
}

enum err_code device_peak(struct device *d, enum device_type type, double *flops, struct err *e)
{
    struct peak p = {type, (int64_t)PEAK_ROWS * d->threads, PEAK_SIDE, 1};
    int64_t best = 0;
    if (!d->host)
        p = (struct peak){type, PEAK_AWAY_SIDE, PEAK_AWAY_SIDE, PEAK_AWAY_RUNS};
    if (peak_run(d, &p, &best, e))
        return e->code;
    while (!d->host && best < PEAK_AWAY_NS && p.side < PEAK_AWAY_LAST) {
        p.side = p.rows = p.side * 2;
        if (peak_run(d, &p, &best, e))
            return e->code;
    }
    *flops = 2.0 * (double)p.rows * (double)p.side * (double)p.side / ((double)best * 1e-9);
    return ERR_OK;
}

void device_close(struct device *d)
{
    if (d)
        d->ops->close(d);
}

enum err_code device_alloc(struct device *d, size_t bytes, const char *what, void **out, struct err *e)
{
    if (d->ops->alloc(d, bytes, out, e))
        return err_wrap(e, "%s (%zu bytes)", what, bytes);
    return ERR_OK;
}
