#ifndef DDP_TESTS_GPU_OPS_H
#define DDP_TESTS_GPU_OPS_H

#include "trainer/device/device.h"

/* Opens a device that has only the kernels. Only one can be open. UNAVAILABLE: there is no GPU. */
MUST_CHECK enum err_code ops_launchers_open(struct device **out, struct err *e);

/* Launches the kernel that follows a layer's product, on such a device. device.h has no operation for this kernel. */
void ops_bias_activate(enum device_activation kind, enum device_type type, void *a, void *z,
                       const float *bias, int64_t rows, int64_t cols);

/* Compares the products of the plugin, and the operations around them, with the CPU's. Return the number of failures. */
int ops_products(struct device *cpu, struct device *gpu, bool quick);
/* Runs products up to 100 times each and compares the bits of their results. */
int ops_repeats(struct device *gpu, bool quick);

#endif
