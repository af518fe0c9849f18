#ifndef DDP_TESTS_GPU_OPS_H
#define DDP_TESTS_GPU_OPS_H

#include "trainer/device/device.h"

/* A device that has only the kernels. One at a time. UNAVAILABLE: no GPU. */
MUST_CHECK enum err_code ops_launchers_open(struct device **out, struct err *e);

/* The kernel of such a device that follows a layer's product. It is not an operation of device.h. */
void ops_bias_activate(enum device_activation kind, enum device_type type, void *a, void *z,
                       const float *bias, int64_t rows, int64_t cols);

#endif
