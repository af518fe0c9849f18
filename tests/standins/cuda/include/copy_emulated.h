#ifndef DDP_TESTS_STANDINS_CUDA_INCLUDE_COPY_EMULATED_H
#define DDP_TESTS_STANDINS_CUDA_INCLUDE_COPY_EMULATED_H

#include "emulated_kernel.h"

/* Replaces the helpers of trainer/device/cuda/kernels/copy.cuh when kernels are compiled for the CPU. */

template <int BYTES> static inline void copy_begin(void *to, const void *from, bool there)
{
    static_assert(BYTES == 16 || BYTES == 4, "the GPU copies 4 or 16 bytes");
    if ((uintptr_t)to % BYTES || (uintptr_t)from % BYTES)
        emulated_trap("a copy of %d bytes from %p to %p is not aligned", BYTES, from, to);
    emulated_copy_begin(to, there ? from : nullptr, BYTES);
}

static inline void copy_wait(void)
{
    emulated_copy_wait();
}

#endif
