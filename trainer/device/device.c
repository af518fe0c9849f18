#include "trainer/device/device.h"

#include <math.h>

#include "base/clock.h"
#include "trainer/device/cpu/cpu.h"

enum err_code device_open(struct device **out, enum device_kind kind, int local_rank, int local_ranks,
                          int threads, struct err *e)
{
    if (kind == DEVICE_CPU)
        return cpu_open(out, local_rank, local_ranks, threads, e);
    return err_set(e, ERR_UNIMPLEMENTED, "device: cuda is not in this build, use device: cpu");
}

/* 0.5 to 1 GFLOP: caches are warm, and what a call costs does not show. */
#define PEAK_ROWS 512
#define PEAK_SIDE 1024
#define PEAK_RUNS 4

static double seconds(void)
{
    return (double)clock_mono_ns() * 1e-9;
}

enum err_code device_peak(struct device *d, enum device_type type, double *flops, struct err *e)
{
    size_t rows = PEAK_ROWS, side = PEAK_SIDE, left = rows * side * device_size(type);
    void *memory = NULL;
    double best = INFINITY;
    if (device_alloc(d, left + side * side * device_size(type) + rows * side * sizeof(float),
                     "factors to measure the peak with", &memory, e))
        return e->code;
    char *a = memory, *b = a + left, *c = b + side * side * device_size(type);
    for (int i = 0; i < PEAK_RUNS; i++) {
        double began = seconds();
        d->ops->matmul(d, type, false, false, PEAK_ROWS, PEAK_SIDE, PEAK_SIDE, a, b, 0.0f,
                       (float *)(void *)c);
        if (d->ops->wait(d, e))
            break;
        best = fmin(best, seconds() - began);
    }
    d->ops->free(d, memory);
    if (e->code)
        return e->code;
    *flops = 2.0 * PEAK_ROWS * PEAK_SIDE * PEAK_SIDE / best;
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
