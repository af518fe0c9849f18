#ifndef DDP_TRAINER_DEVICE_CPU_SEQUENCE_H
#define DDP_TRAINER_DEVICE_CPU_SEQUENCE_H

#include "trainer/device/device.h"

/* Operations on tokens. */
void sequence_linear(struct device *d, const struct device_linear *h);
void sequence_bias_activate_grad(struct device *d, enum device_activation kind, enum device_type type,
                                 enum device_type kept, void *dz, void *a, float *dbias, const void *da,
                                 const void *z, int64_t rows, int64_t cols);
void sequence_embed(struct device *d, const struct device_embedding *h, const float *wte, const float *wpe,
                    float *x);
void sequence_embed_grad(struct device *d, const struct device_embedding *h, float *dwte, float *dwpe,
                         void *dx);
void sequence_norm(struct device *d, const struct device_norm *h);
void sequence_norm_grad(struct device *d, const struct device_norm_grad *h);
void sequence_attention(struct device *d, const struct device_attention *h);
void sequence_attention_grad(struct device *d, const struct device_attention *h, const void *d_o, void *dqkv);
enum err_code sequence_reserve(struct device *d, const struct device_sizes *sizes, struct err *e);

#endif
