#ifndef DDP_TRAINER_DEVICE_CPU_MUON_H
#define DDP_TRAINER_DEVICE_CPU_MUON_H

#include "trainer/device/cpu/sets.h"

/* Muon's update of one matrix by one thread: muon.c, compiled once for each instruction set. */

struct cpu_muon {
    /* room: cpu_muon_floats, 64-byte aligned */
    void (*update)(const struct device_muon *h, const struct device_matrix *t, float *p, const float *g,
                   float *m, float *room);
};

/* The matrix as it is worked on: its smaller side are the rows; both sides are padded by zeros to whole
 * panels. Between two rows lie 16 floats more, because rows at a distance of a power of two would share
 * the same few places in the cache. */
#define CPU_MUON_PANEL 32
#define CPU_MUON_DEPTH 512 /* of a panel: terms of a sum that are added at a time */
struct cpu_muon_shape {
    bool transposed;
    int64_t rows, cols;
    int64_t stride, square_stride; /* of the matrix; of the two square matrices that are made from it */
    size_t matrix, square, panel;  /* floats of each */
};

static inline struct cpu_muon_shape cpu_muon_shape(const struct device_matrix *t)
{
    struct cpu_muon_shape s = {.transposed = t->rows > t->cols};
    s.rows = cpu_rounded(s.transposed ? t->cols : t->rows, CPU_MUON_PANEL);
    s.cols = cpu_rounded(s.transposed ? t->rows : t->cols, CPU_MUON_PANEL);
    s.stride = s.cols + 16;
    s.square_stride = s.rows + 16;
    s.matrix = (size_t)(s.rows * s.stride);
    s.square = (size_t)(s.rows * s.square_stride);
    s.panel = (size_t)((s.rows > CPU_MUON_DEPTH ? s.rows : CPU_MUON_DEPTH) * CPU_MUON_PANEL);
    return s;
}

static inline size_t cpu_muon_floats(const struct device_matrix *t)
{
    struct cpu_muon_shape s = cpu_muon_shape(t);
    return s.matrix + 2 * s.square + s.panel;
}

#endif
