#ifndef DDP_TRAINER_DEVICE_CPU_FLAT_H
#define DDP_TRAINER_DEVICE_CPU_FLAT_H

#include "trainer/device/device.h"

/* Operations on flat arrays: copies, sums, clipping, and the optimizers' updates. */

void flat_copy(struct device *d, void *to, const void *from, size_t bytes);
void flat_zero(struct device *d, void *to, size_t bytes);

void flat_sum_squares(struct device *d, const float *x, size_t n, double *out);
void flat_clip_scale(struct device *d, float *scale, const double *squares, double clip);
void flat_scale(struct device *d, float *x, size_t n, float by);
void flat_add(struct device *d, float *y, const float *x, size_t n);
void flat_sgd(struct device *d, const struct device_sgd *h, float *p, const float *g, float *v, size_t n);
void flat_adamw(struct device *d, const struct device_adamw *h, float *p, const float *g, float *m, float *v,
                size_t n);
void flat_muon(struct device *d, const struct device_muon *h, float *p, const float *g, float *m);
size_t flat_muon_bytes(const struct device *d, const struct device_muon *h);

#endif
