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

/* Each run is a millisecond or two on one core, whatever the number of threads: long enough for what a call
 * costs not to show, short enough for some run to pass undisturbed where cores are shared. The best counts.
 */
#define PEAK_ROWS 256 /* a thread */
#define PEAK_SIDE 768
#define PEAK_LEAST 4 /* runs */
#define PEAK_NS 40000000

/* One thread's time is that of its core: neighbours do not count. Threads that wait for each other have only
 * the clock on the wall. */
static int64_t now_ns(const struct device *d)
{
    struct timespec t;
    if (d->threads > 1)
        return clock_mono_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static enum err_code best_run(struct device *d, enum device_type type, int64_t rows, const void *a,
                              const void *b, float *c, int64_t *best, struct err *e)
{
    struct device_product h = {
        .type = type, .m = rows, .n = PEAK_SIDE, .k = PEAK_SIDE, .a = a, .b = b, .c = c};
    int64_t began = now_ns(d), now = began;
    *best = INT64_MAX;
    for (int i = 0; i < PEAK_LEAST || now - began < PEAK_NS; i++) {
        int64_t from = now;
        d->ops->product(d, &h);
        if (d->ops->wait(d, e))
            return e->code;
        now = now_ns(d);
        *best = now - from < *best ? now - from : *best;
    }
    return ERR_OK;
}

enum err_code device_peak(struct device *d, enum device_type type, double *flops, struct err *e)
{
    int64_t rows = (int64_t)PEAK_ROWS * d->threads, best = 0;
    size_t left = (size_t)(rows * PEAK_SIDE), right = (size_t)(PEAK_SIDE * PEAK_SIDE);
    void *memory = NULL;
    if (device_alloc(d, (left + right) * device_size(type) + left * sizeof(float),
                     "factors to measure the peak with", &memory, e))
        return e->code;
    char *a = memory, *b = a + left * device_size(type), *c = b + right * device_size(type);
    enum err_code code = best_run(d, type, rows, a, b, (float *)(void *)c, &best, e);
    d->ops->free(d, memory);
    if (code)
        return e->code;
    *flops = 2.0 * (double)rows * PEAK_SIDE * PEAK_SIDE / ((double)best * 1e-9);
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
