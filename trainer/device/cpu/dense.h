#ifndef DDP_TRAINER_DEVICE_CPU_DENSE_H
#define DDP_TRAINER_DEVICE_CPU_DENSE_H

#include "trainer/device/device.h"

/* Products, biases and activations. The kept type of a CPU is always float, except around attention (device_attended). */
void dense_product(struct device *d, const struct device_product *h);
/* The same of bf16, with a bias that is added to each row before it is rounded. */
void dense_biased_product(struct device *d, const struct device_product *h, const float *bias);
void dense_narrow(struct device *d, void *bf16, const float *x, size_t n);
void dense_bias(struct device *d, float *y, const float *b, int64_t rows, int64_t cols);
void dense_bias_grad(struct device *d, enum device_type type, float *db, const void *dy, int64_t rows,
                     int64_t cols);
void dense_activate(struct device *d, enum device_activation kind, float *y, const float *x, size_t n);
void dense_activate_grad(struct device *d, enum device_activation kind, float *dx, const float *dy,
                         const float *x, size_t n);

#endif
