#ifndef DDP_TESTS_STANDINS_CUDA_INCLUDE_COPY_EMULATED_H
#define DDP_TESTS_STANDINS_CUDA_INCLUDE_COPY_EMULATED_H

#include "emulated_kernel.h"

/* The helpers of trainer/device/cuda/kernels/copy.cuh for a CPU. */

template <int BYTES> static inline void copy_begin(void *to, const void *from, bool there)
{
    static_assert(BYTES == 16 || BYTES == 4, "as the GPU's");
    if ((uintptr_t)to % BYTES || (uintptr_t)from % BYTES)
        emulated_trap("a copy of %d bytes from %p to %p is not aligned", BYTES, from, to);
    emulated_copy_begin(to, there ? from : nullptr, BYTES);
}

static inline void copy_wait(void)
{
    emulated_copy_wait();
}

#endif
