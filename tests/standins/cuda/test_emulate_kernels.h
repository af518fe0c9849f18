#ifndef DDP_TESTS_STANDINS_CUDA_TEST_EMULATE_KERNELS_H
#define DDP_TESTS_STANDINS_CUDA_TEST_EMULATE_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

/* Kernels for test_emulate.c: right ones, and ones with the mistakes that the emulator is there to find. */

#ifdef __cplusplus
extern "C" {
#endif

void kernel_index(cudaStream_t stream, int *to, int n, int block);       /* to[i] = i */
void kernel_sum(cudaStream_t stream, double *to, const float *x, int n); /* by one block, shuffles inside */
void kernel_reverse(cudaStream_t stream, int *x, int n, int barrier);    /* by dynamic shared memory */
void kernel_add(cudaStream_t stream, float *y, const float *x, int n);   /* y += x */
void kernel_lanes(cudaStream_t stream, int *to); /* 32 lanes, every kind of exchange */
void kernel_product(cudaStream_t stream, float *c, const uint16_t *a,
                    const uint16_t *b); /* (16,8) of (16,16) (16,8) */
void kernel_last_block(cudaStream_t stream, int *to,
                       int blocks); /* the block that ran last: blocks must not tell */
/* x[i] = x[n - 1 - i], by copies that go on beside; n at most 1024, a multiple of 4. late: the thread waits
 * for its copy behind the barrier */
void kernel_copy(cudaStream_t stream, int *x, int n, int late);

void kernel_ends_early(cudaStream_t stream, int *x); /* a thread ends, the others wait */
void kernel_two_barriers(cudaStream_t stream, int *x);
void kernel_lane_missing(cudaStream_t stream, int *x);
void kernel_copy_forgotten(cudaStream_t stream, int *x); /* and never waited for */
void kernel_poison(cudaStream_t stream, float *to);      /* shared memory that nothing wrote */
void kernel_stray(cudaStream_t stream, float *x, int n); /* x[n] = 0 */
void kernel_greedy(cudaStream_t stream);                 /* more shared memory than a block has */

#ifdef __cplusplus
}
#endif

#endif
