#ifndef DDP_TRAINER_DEVICE_CUDA_ERROR_H
#define DDP_TRAINER_DEVICE_CUDA_ERROR_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "base/err.h"

/* CUDA's error codes as struct err. */

/* Whether the error ends CUDA's context: the process cannot use the GPU any more. */
bool cuda_ends_context(cudaError_t code);
/* Returns UNAVAILABLE if there is no GPU or driver, RESOURCE_EXHAUSTED if memory ran out, else INTERNAL: a new process
 * on another GPU may succeed. Clears the error that CUDA remembers. */
enum err_code cuda_error(cudaError_t code, const char *what, struct err *e);

#endif
