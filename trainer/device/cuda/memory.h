#ifndef DDP_TRAINER_DEVICE_CUDA_MEMORY_H
#define DDP_TRAINER_DEVICE_CUDA_MEMORY_H

#include "trainer/device/cuda/cuda.h"

/* Device memory. */

enum err_code cuda_alloc(struct device *d, size_t bytes, void **out, struct err *e);
void cuda_free(struct device *d, void *p);
void cuda_free_all(struct cuda_device *c);
/* Makes room for at least so many bytes of partial sums. The former room stays allocated: recorded graphs may use it. */
enum err_code cuda_work_grow(struct cuda_device *c, size_t bytes, struct err *e);

#endif
