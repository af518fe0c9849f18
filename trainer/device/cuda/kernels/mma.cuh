#ifndef DDP_TRAINER_DEVICE_CUDA_MMA_CUH
#define DDP_TRAINER_DEVICE_CUDA_MMA_CUH

#include <stdint.h>

#include "trainer/device/cuda/kernels/bf16.cuh"

/* A warp's matrix product of bf16, with float sums: c (16,8) += a (16,16) b (16,8). Each matrix is spread over the 32
 * lanes. With group = lane / 4 and pair = lane % 4 * 2, a lane holds
 *   a: rows group and group + 8, columns pair, pair + 1 (a[0], a[1]) and those + 8 (a[2], a[3]);
 *   b: column group, rows pair, pair + 1 (b[0]) and those + 8 (b[1]);
 *   c: row group, columns pair and pair + 1 (c[0], c[1]); the same of row group + 8 (c[2], c[3]).
 * So a result c, rounded to bf16, can be the factor a of the next product without moving between lanes. All lanes of a
 * warp call together. */

#ifdef __CUDACC__

static __device__ __forceinline__ void mma_16816(float c[4], const uint32_t a[4], const uint32_t b[2])
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/* Loads four 8x8 matrices from shared memory. Lanes 8 i to 8 i + 7 give the rows of matrix i, at 16-byte boundaries. Of
 * each matrix a lane gets row group, columns pair and pair + 1; transposed: column group, rows pair and pair + 1. */
static __device__ __forceinline__ void mma_load(uint32_t out[4], const uint16_t *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at)
                 : "memory");
}

static __device__ __forceinline__ void mma_load_transposed(uint32_t out[4], const uint16_t *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at)
                 : "memory");
}

#else
#include "mma_emulated.h" /* the same three functions for a CPU: tests/standins/cuda */
#endif

#endif
