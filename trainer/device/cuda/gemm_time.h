#ifndef DDP_TRAINER_DEVICE_CUDA_GEMM_TIME_H
#define DDP_TRAINER_DEVICE_CUDA_GEMM_TIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Finds the fastest of several algorithms for the same product. It runs them on a stream and memory of its own, beside
 * the device's computations. The host polls, for 5 seconds at most. Memory is freed in gemm_timer_close only: cudaFree
 * waits for everything on the GPU, and so for a collective whose peer hangs. */

struct gemm_timer;
struct gemm_trial {
    size_t result, aux, workspace; /* bytes that a run writes; 0: none */
    int count;
    /* Starts algorithm number `way` on the stream. Returns false if it cannot run. */
    bool (*run)(void *arg, int way, void *result, void *aux, void *workspace, cudaStream_t stream);
    void *arg;
};

MUST_CHECK enum err_code gemm_timer_open(struct gemm_timer **out, struct err *e);
void gemm_timer_close(struct gemm_timer *t); /* NULL is fine */
size_t gemm_timer_bytes(const struct gemm_timer *t);
/* Returns the number of the fastest, from 0 to count - 1; 0 if nothing can be measured. */
int gemm_timer_fastest(struct gemm_timer *t, const struct gemm_trial *trial);

#endif
