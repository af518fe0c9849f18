#ifndef DDP_TRAINER_DEVICE_CUDA_FETCH_H
#define DDP_TRAINER_DEVICE_CUDA_FETCH_H

#include "trainer/device/cuda/cuda.h"

/* Copies to the host beside computing: device_ops.fetch. */

enum err_code cuda_fetch_open(struct cuda_device *c, struct err *e);
void cuda_fetch_close(struct cuda_device *c);
enum err_code cuda_fetch(struct device *d, void *to_host, const void *from, size_t bytes, struct err *e);

#endif
