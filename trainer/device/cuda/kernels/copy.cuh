#ifndef DDP_TRAINER_DEVICE_CUDA_COPY_CUH
#define DDP_TRAINER_DEVICE_CUDA_COPY_CUH

#include <stdint.h>

/* Asynchronous copies from global to shared memory. A thread waits for its own copies with copy_wait; a barrier after
 * that makes them visible to the other threads. BYTES is 16 or 4, and both addresses are multiples of it. */

#ifdef __CUDACC__

/* Starts a copy. If `there` is false it writes zeros and does not read `from`, which may then be any address. */
template <int BYTES> static __device__ __forceinline__ void copy_begin(void *to, const void *from, bool there)
{
#if __CUDA_ARCH__ >= 800
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(at), "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :
                     : "r"(at), "l"(__cvta_generic_to_global(from)), "r"(there ? 4 : 0)
                     : "memory");
#endif
}

static __device__ __forceinline__ void copy_wait(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

#else
#include "copy_emulated.h" /* the same two functions for a CPU: tests/standins/cuda */
#endif

#endif
