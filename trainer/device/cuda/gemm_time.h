#ifndef DDP_TRAINER_DEVICE_CUDA_GEMM_TIME_H
#define DDP_TRAINER_DEVICE_CUDA_GEMM_TIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* The fastest of several ways to do the same, measured beside what the device computes: on a stream of its
 * own and into memory of its own. The host waits by asking, for some seconds at most, and nothing is freed
 * before the end: collectives whose peer hangs may be in flight. */

struct gemm_timer;
struct gemm_trial {
    size_t result, aux, workspace; /* bytes of what it writes; 0: nothing */
    int count;
    /* Puts one of the ways on the stream; false: it cannot. */
    bool (*run)(void *arg, int way, void *result, void *aux, void *workspace, cudaStream_t stream);
    void *arg;
};

MUST_CHECK enum err_code gemm_timer_open(struct gemm_timer **out, struct err *e);
void gemm_timer_close(struct gemm_timer *t); /* NULL is fine */
size_t gemm_timer_bytes(const struct gemm_timer *t);
/* From 0 to count - 1; 0 where nothing can be measured. */
int gemm_timer_fastest(struct gemm_timer *t, const struct gemm_trial *trial);

#endif
