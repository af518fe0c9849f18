#ifndef DDP_TRAINER_DEVICE_CUDA_GRAPH_H
#define DDP_TRAINER_DEVICE_CUDA_GRAPH_H

#include "trainer/device/cuda/cuda.h"

/* Recordings of a step as CUDA graphs, kept by key: record, recorded and replay of device.h. */

void cuda_record(struct device *d, uint64_t key);
bool cuda_recorded(struct device *d);             /* false: nothing was done, do the work again */
bool cuda_replay(struct device *d, uint64_t key); /* false: there is no recording with this key */
void cuda_forget(struct cuda_device *c);          /* releases all recordings */

#endif
