#ifndef DDP_TRAINER_DEVICE_CUDA_GEMM_GEMM_TIME_H
#define DDP_TRAINER_DEVICE_CUDA_GEMM_GEMM_TIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "base/err.h"

/* Finds the fastest of several ways to compute the same result. All runs are on the device's own stream, after the work
 * that was started before, so no other work of this trainer runs at the same time. Each way runs once to warm up and
 * then GEMM_TIMED_RUNS times; the median counts. The host waits at most a minute for the runs of a way. If they take
 * longer, nothing more is measured. */

enum { GEMM_TIMED_RUNS = 7 };

struct gemm_timer;
/* Starts way number `way` on the stream. Returns false if it cannot run. */
typedef bool gemm_way_fn(void *arg, int way, cudaStream_t stream);

MUST_CHECK enum err_code gemm_timer_open(struct gemm_timer **out, cudaStream_t stream, struct err *e);
void gemm_timer_close(struct gemm_timer *t); /* NULL is fine */
/* Returns the number of the fastest, from 0 to count - 1; 0 if nothing can be measured. */
int gemm_timer_fastest(struct gemm_timer *t, int count, gemm_way_fn *run, void *arg);

#endif
