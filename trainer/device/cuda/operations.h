#ifndef DDP_TRAINER_DEVICE_CUDA_OPERATIONS_H
#define DDP_TRAINER_DEVICE_CUDA_OPERATIONS_H

#include "trainer/device/device.h"

/* The device's operations: checks the device, then launches the product or kernel. */

void cuda_operations(struct device_ops *ops); /* fills in all operations that compute */

#endif
