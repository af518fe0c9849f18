#ifndef DDP_TRAINER_DEVICE_CUDA_RANGES_CUH
#define DDP_TRAINER_DEVICE_CUDA_RANGES_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "trainer/device/ranges.h"

/* The range that this block works on: the last one that begins no later than the block. */
static __device__ __forceinline__ struct device_range range_of_block(const struct device_range *ranges, int count)
{
    int low = 0, high = count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (ranges[middle].blocks_before <= blockIdx.x)
            low = middle;
        else
            high = middle - 1;
    }
    return ranges[low];
}

/* The first of this block's elements, counted from the range's offset. */
static __device__ __forceinline__ int64_t range_start(const struct device_range &r)
{
    return ((int64_t)blockIdx.x - (int64_t)r.blocks_before) * DEVICE_RANGE_BLOCK;
}

#endif
