#ifndef DDP_BASE_PLAN_GPU_TABLE_H
#define DDP_BASE_PLAN_GPU_TABLE_H

/* Figures of GPUs from their makers' data sheets, for `ddpctl plan --gpu NAME`. The sources are in gpu_table.c. */
struct gpu_figures {
    const char *name; /* "h100-sxm" */
    const char *about;
    double bf16, fp32;  /* floating-point operations per second of dense matrix products, with float sums */
    double memory;      /* bytes */
    double memory_rate; /* bytes per second, read and written together */
    double inside; /* bytes per second that a GPU sends to the node's others, and at the same time receives */
};

extern const struct gpu_figures gpu_table[];          /* ended by a NULL name */
const struct gpu_figures *gpu_find(const char *name); /* NULL: unknown */

#endif
