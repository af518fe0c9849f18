#ifndef DDP_TESTS_STANDINS_CUDA_INCLUDE_CUDA_RUNTIME_H
#define DDP_TESTS_STANDINS_CUDA_INCLUDE_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus
#include "emulated_kernel.h"
#endif

#endif
