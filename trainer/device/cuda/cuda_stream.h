#ifndef DDP_TRAINER_DEVICE_CUDA_CUDA_STREAM_H
#define DDP_TRAINER_DEVICE_CUDA_CUDA_STREAM_H

#include <cuda_runtime_api.h>

#include "base/err.h"
#include "trainer/device/device.h"

/* The part of the device that its collectives need. Defined by cuda.c; tests of the collectives bring their own. */

/* The stream of the device's computations. Owned by the device. */
cudaStream_t cuda_stream(struct device *d);
/* The device's first error since its last wait, or OK. The error stays: the next wait reports it, too. */
enum err_code cuda_first_error(struct device *d, struct err *e);

#endif
