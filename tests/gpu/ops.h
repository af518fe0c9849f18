#ifndef DDP_TESTS_GPU_OPS_H
#define DDP_TESTS_GPU_OPS_H

#include "trainer/device/device.h"

/* A device of the kernels alone; UNAVAILABLE: no GPU. One at a time. */
MUST_CHECK enum err_code ops_launchers_open(struct device **out, struct err *e);

/* What such a device does behind a layer's product; no operation of its own. */
void ops_bias_activate(enum device_activation kind, enum device_type type, void *a, void *z,
                       const float *bias, int64_t rows, int64_t cols);

#endif
