#ifndef DDP_TRAINER_DEVICE_CUDA_MUON_H
#define DDP_TRAINER_DEVICE_CUDA_MUON_H

#include "trainer/device/cuda/cuda.h"

/* Muon's update of device.h. An error of it is the device's. */

void cuda_muon(struct device *d, const struct device_muon *h, float *p, const float *g, float *m);
size_t cuda_muon_bytes(const struct device *d, const struct device_muon *h);

#endif
