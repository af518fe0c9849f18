#ifndef DDP_TESTS_STANDINS_CUDA_INCLUDE_LIBRARY_TYPES_H
#define DDP_TESTS_STANDINS_CUDA_INCLUDE_LIBRARY_TYPES_H

#include "cuda_runtime_api.h"

/* The only type of CUDA's header of this name that cuDNN's headers need. */
typedef enum libraryPropertyType_t { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL } libraryPropertyType;

#endif
