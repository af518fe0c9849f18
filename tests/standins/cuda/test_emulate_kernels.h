#ifndef DDP_TESTS_STANDINS_CUDA_TEST_EMULATE_KERNELS_H
#define DDP_TESTS_STANDINS_CUDA_TEST_EMULATE_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

/* Kernels for test_emulate.c: correct ones, and ones with mistakes that the emulator must find. */

#ifdef __cplusplus
extern "C" {
#endif

/* to[i] = i */
void kernel_index(cudaStream_t stream, int *to, int n, int block);
/* *to = the sum of x, computed by one block with shuffles */
void kernel_sum(cudaStream_t stream, double *to, const float *x, int n);
/* x[i] = x[n - 1 - i], through dynamic shared memory. barrier 0: the needed barrier is missing. */
void kernel_reverse(cudaStream_t stream, int *x, int n, int barrier);
/* y += x */
void kernel_add(cudaStream_t stream, float *y, const float *x, int n);
/* One warp uses each kind of exchange; to: 7 x 32 results. */
void kernel_lanes(cudaStream_t stream, int *to);
/* c (16,8) = a (16,16) b (16,8) */
void kernel_product(cudaStream_t stream, float *c, const uint16_t *a, const uint16_t *b);
/* *to = the block that ran last, which correct kernels must not depend on */
void kernel_last_block(cudaStream_t stream, int *to, int blocks);
/* x[i] = x[n - 1 - i], by asynchronous copies to shared memory; n: a multiple of 4, at most 1024. late: a thread
 * waits for its copies only after the barrier, which is too late. */
void kernel_copy(cudaStream_t stream, int *x, int n, int late);

/* A thread ends, while the others wait at a barrier. */
void kernel_ends_early(cudaStream_t stream, int *x);
/* Half of the threads wait at one barrier, half at another. */
void kernel_two_barriers(cudaStream_t stream, int *x);
/* A lane does not take part in a shuffle whose mask names it. */
void kernel_lane_missing(cudaStream_t stream, int *x);
/* A thread ends without waiting for the copies that it began. */
void kernel_copy_forgotten(cudaStream_t stream, int *x);
/* Reads shared memory that nothing has written. */
void kernel_poison(cudaStream_t stream, float *to);
/* x[n] = 0 */
void kernel_stray(cudaStream_t stream, float *x, int n);
/* Asks for more shared memory than a block has by default. */
void kernel_greedy(cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
