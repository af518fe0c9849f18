#ifndef DDP_TRAINER_DEVICE_CUDA_MEMORY_H
#define DDP_TRAINER_DEVICE_CUDA_MEMORY_H

#include "trainer/device/cuda/cuda.h"

/* Device memory: alloc and free of device.h, and the workspace of the kernels. */

enum err_code cuda_alloc(struct device *d, size_t bytes, void **out, struct err *e);
void cuda_free(struct device *d, void *p);
void cuda_free_all(struct cuda_device *c); /* when the device is closed */
/* Grows the workspace to at least so many bytes. The former one stays allocated: recorded graphs may use it. */
enum err_code cuda_work_grow(struct cuda_device *c, size_t bytes, struct err *e);

#endif
