#ifndef DDP_TRAINER_DEVICE_CUDA_LAUNCH_CUH
#define DDP_TRAINER_DEVICE_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

/* Starting kernels, and shared memory whose size the launch says, in words that both nvcc and an ordinary C++
 * compiler understand: the second runs them on the CPU (tests/standins/cuda). A template with several arguments
 * goes in parentheses: LAUNCH((sum<float, 4>), grid, block, 0, stream, x, n). Errors are cudaGetLastError's.
 *
 * LAUNCH_SHARED is for kernels that may want more than 48 KB of shared memory.
 *
 * DYNAMIC_SHARED(type, name) declares `type *name`, aligned to 16 bytes. Fixed shared memory is `__shared__`
 * as ever, without an initial value. */

#ifdef __CUDACC__

#define LAUNCH(kernel, grid, block, shared, stream, ...)                                                     \
    do {                                                                                                     \
        auto *launched = kernel;                                                                             \
        launched<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__);                                      \
    } while (0)

#define LAUNCH_SHARED(kernel, grid, block, shared, stream, ...)                                              \
    do {                                                                                                     \
        auto *launched = kernel;                                                                             \
        if (!cudaFuncSetAttribute((const void *)launched, cudaFuncAttributeMaxDynamicSharedMemorySize,       \
                                  (int)(shared)))                                                            \
            launched<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__);                                  \
    } while (0)

#define DYNAMIC_SHARED(type, name)                                                                           \
    extern __shared__ __align__(16) unsigned char dynamic_shared[];                                          \
    type *name = reinterpret_cast<type *>(dynamic_shared)

#else

#define LAUNCH(kernel, grid, block, shared, stream, ...)                                                     \
    emulated_launch(#kernel, kernel, (grid), (block), (shared), (stream), ##__VA_ARGS__)

#define LAUNCH_SHARED(kernel, grid, block, shared, stream, ...)                                              \
    do {                                                                                                     \
        if (!cudaFuncSetAttribute((const void *)(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,       \
                                  (int)(shared)))                                                            \
            emulated_launch(#kernel, kernel, (grid), (block), (shared), (stream), ##__VA_ARGS__);            \
    } while (0)

#define DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(emulated_dynamic_shared())

#endif

#endif
