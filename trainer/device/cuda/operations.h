#ifndef DDP_TRAINER_DEVICE_CUDA_OPERATIONS_H
#define DDP_TRAINER_DEVICE_CUDA_OPERATIONS_H

#include "trainer/device/device.h"

/* The operations of device.h: each checks that the device has no error, then launches its product or kernel. */

void cuda_operations(struct device_ops *ops); /* fills in all operations that compute */

#endif
