/* The sums of a digest (base/digest.h), one for each block of 1024 words. A warp computes one sum; a thread reads eight
 * vectors of four words, all in flight at once. Sums of integers are the same in any order. */
#include "trainer/device/cuda/kernels/kernels.h"
#include "trainer/device/cuda/kernels/launch.cuh"

#define BLOCK 1024 /* base/digest.h's DIGEST_BLOCK */
#define WARPS 8
#define VECTORS (BLOCK / 4 / 32) /* of each thread, in one block */
#define STEP 0x9e3779b1u

struct alignas(16) words {
    uint32_t w[4];
};

static __device__ __forceinline__ uint64_t word_hash(uint32_t word, uint32_t place)
{
    return (uint64_t)word * (STEP * (place + 1) | 1u);
}

static __device__ __forceinline__ uint64_t whole_block(const uint32_t *from, uint32_t lane)
{
    const words *at = (const words *)from;
    words v[VECTORS];
    uint64_t sum = 0;
#pragma unroll
    for (int i = 0; i < VECTORS; i++)
        v[i] = at[lane + 32 * i];
#pragma unroll
    for (int i = 0; i < VECTORS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            sum += word_hash(v[i].w[j], 4 * (lane + 32 * (uint32_t)i) + (uint32_t)j);
    return sum;
}

static __device__ __forceinline__ uint64_t last_block(const uint32_t *from, size_t n, uint32_t lane)
{
    uint64_t sum = 0;
    for (uint32_t i = lane; i < n; i += 32)
        sum += word_hash(from[i], i);
    return sum;
}

static __global__ void digest_blocks(uint64_t *sums, const uint32_t *x, size_t n)
{
    size_t block = (size_t)blockIdx.x * WARPS + threadIdx.x / 32, first = block * BLOCK;
    uint32_t lane = threadIdx.x % 32;
    uint64_t sum = 0;
    if (first < n)
        sum = n - first >= BLOCK ? whole_block(x + first, lane) : last_block(x + first, n - first, lane);
    for (int far = 16; far > 0; far /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, far);
    if (lane == 0 && first < n)
        sums[block] = sum;
}

cudaError_t cuda_digest(cudaStream_t stream, uint64_t *sums, const float *x, size_t n)
{
    size_t blocks = (n + BLOCK - 1) / BLOCK, grid = (blocks + WARPS - 1) / WARPS;
    if (n)
        LAUNCH(digest_blocks, (unsigned)grid, 32 * WARPS, 0, stream, sums, (const uint32_t *)x, n);
    return cudaGetLastError();
}
