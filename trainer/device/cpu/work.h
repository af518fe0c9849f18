#ifndef DDP_TRAINER_DEVICE_CPU_WORK_H
#define DDP_TRAINER_DEVICE_CPU_WORK_H

#include "trainer/device/cpu/cpu.h"

/* Runs an operation that is divided into parts for the threads. */

#define CPU_FLAT_PART ((size_t)1 << 16) /* floats in one part of a flat array */

static inline int64_t flat_parts(size_t n)
{
    return (int64_t)((n + CPU_FLAT_PART - 1) / CPU_FLAT_PART);
}
static inline size_t flat_part_count(size_t n, int64_t part)
{
    size_t from = (size_t)part * CPU_FLAT_PART;
    return n - from < CPU_FLAT_PART ? n - from : CPU_FLAT_PART;
}

/* The arguments of an operation, which all its parts see. Each operation uses some of the fields. */
struct cpu_work {
    const struct cpu_kernels *k;
    const struct cpu_muon *muon;
    enum device_activation kind;
    enum device_type type;
    const void *h;
    const float *x, *y;
    float *to, *m, *v;
    uint16_t *narrow;
    const uint16_t *from_narrow;
    int64_t rows, cols, parts;
    size_t n;
    float scale;
    double *sums;
    struct device_tally *tallies;
};

static inline void work_run(struct device *d, struct cpu_work *w, int64_t parts, cpu_part_fn fn)
{
    w->k = cpu_of(d)->set.kernels;
    w->parts = parts;
    cpu_threads_run(&cpu_of(d)->threads, parts, fn, w);
}

#endif
