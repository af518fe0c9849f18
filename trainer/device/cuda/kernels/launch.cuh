#ifndef DDP_TRAINER_DEVICE_CUDA_LAUNCH_CUH
#define DDP_TRAINER_DEVICE_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

/* Launches of kernels and dynamic shared memory, as macros for both nvcc and an ordinary C++ compiler, whose programs
 * run the kernels on the CPU (tests/standins/cuda). Errors are those of cudaGetLastError.
 *
 * LAUNCH starts a kernel. A template with several arguments needs parentheses: LAUNCH((sum<float, 4>), grid, block, 0,
 * stream, x, n). LAUNCH_SHARED is for kernels that may need more than 48 KB of shared memory.
 *
 * DYNAMIC_SHARED(type, name) declares `type *name`, aligned to 16 bytes, whose size the launch gives. Shared memory of
 * a fixed size is declared with `__shared__` as usual, without an initial value. */

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
