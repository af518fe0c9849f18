#include "trainer/device/device.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
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

/* How device_peak measures. A run on a CPU takes one or two milliseconds on one core, whatever the number of
 * threads. That is long enough to hide the cost of a call, and short enough for at least one undisturbed run
 * on shared cores. The fastest run counts. For other devices, the side doubles until a run takes
 * PEAK_AWAY_NS, and there are several runs between two waits. */
#define PEAK_ROWS 256 /* rows for each thread */
#define PEAK_SIDE 768
#define PEAK_LEAST 4 /* least number of runs */
#define PEAK_NS 40000000
#define PEAK_AWAY_SIDE 256 /* the first side; PEAK_AWAY_LAST: the largest */
#define PEAK_AWAY_LAST 8192
#define PEAK_AWAY_NS 1000000
#define PEAK_AWAY_RUNS 8
#define PEAK_RANDOM 99991 /* random numbers that are made on the host */

/* The product to measure: (rows,side) times (side,side), `runs` times before each wait. */
struct peak {
    enum device_type type;
    int64_t rows, side;
    int runs;
};

/* With one CPU thread, the thread's own CPU time is measured, so that other processes on its core do not
 * matter. For several threads and for other devices, only the wall clock is available. */
static int64_t now_ns(const struct device *d)
{
    struct timespec t;
    if (d->threads > 1 || !d->host)
        return clock_mono_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Some random numbers are uploaded, and copied on the device until they fill the memory. Their count is odd, so that rows differ. */
void device_fill_random(struct device *d, enum device_type type, void *memory, size_t count)
{
    char *to = memory;
    size_t size = device_size(type), known = count < PEAK_RANDOM ? count : PEAK_RANDOM;
    uint32_t *words = xcalloc(PEAK_RANDOM, sizeof(*words));
    uint32_t random = 1;
    for (size_t i = 0; i < known; i++) {
        random = random * 1664525u + 1013904223u;
        uint32_t word = (random & 0x807fffffu) | 0x3f000000u;
        uint16_t upper = (uint16_t)(word >> 16); /* bf16 */
        memcpy((char *)words + i * size, size == sizeof(upper) ? (void *)&upper : (void *)&word, size);
    }
    d->ops->upload(d, to, words, known * size);
    free(words);
    for (size_t more; known < count; known += more) {
        more = count - known < known ? count - known : known;
        d->ops->copy(d, to + known * size, to, more * size);
    }
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

/* Sets *best to the time of one product, in nanoseconds. */
static enum err_code peak_run(struct device *d, const struct peak *p, int64_t *best, struct err *e)
{
    size_t left = (size_t)(p->rows * p->side), right = (size_t)(p->side * p->side);
    void *memory = NULL;
    if (device_alloc(d, (left + right) * device_size(p->type) + left * sizeof(float),
                     "factors to measure the peak with", &memory, e))
        return e->code;
    struct device_product h = {.type = p->type, .m = p->rows, .n = p->side, .k = p->side, .a = memory};
    device_fill_random(d, p->type, memory, left + right);
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
