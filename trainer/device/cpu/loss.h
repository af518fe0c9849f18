#ifndef DDP_TRAINER_DEVICE_CPU_LOSS_H
#define DDP_TRAINER_DEVICE_CPU_LOSS_H

#include "trainer/device/device.h"

/* Losses, and the tally in which they are added up. */

void loss_cross_entropy(struct device *d, const struct device_classes *h);
void loss_mse(struct device *d, float *dx, const float *x, const float *y, int64_t rows, int64_t cols,
              float scale, struct device_tally *tally);
void loss_tally_mean(struct device *d, float *to, const struct device_tally *tally, double divisor);

#endif
