#ifndef DDP_TRAINER_DEVICE_RATES_H
#define DDP_TRAINER_DEVICE_RATES_H

#include "trainer/device/device.h"

/* How fast a device is: products of matrices, passes over its memory, and copies between the host and its own memory. Each
 * measurement runs for a given time by the wall clock, so that a limit of processor time, heat or another program shows. */

enum device_rate {
    RATE_MATRIX, /* floating-point operations a second, in the type that trainings use most: fp32 on a CPU, bf16 else */
    RATE_MEMORY,   /* bytes a second that y += x reads and writes */
    RATE_UPLOAD,   /* bytes a second from the host to the device; a device with host memory has none */
    RATE_DOWNLOAD, /* and back */
    RATE_COUNT
};
extern const char *const device_rate_names[RATE_COUNT];
bool device_rate_exists(const struct device *d, enum device_rate rate);

/* What is measured with. */
struct rate_sizes {
    int64_t side;  /* of the matrices */
    size_t floats; /* of each array in memory */
};

struct device_rates {
    struct device *device; /* borrowed */
    struct rate_sizes sizes;
    struct device_product product;
    int repeats;   /* products between two waits */
    void *factors; /* device memory: both factors and the product */
    float *x, *y;  /* device memory */
    void *host;    /* NULL if the device has host memory */
};

/* Chooses sizes that take a time that suits the device. Rates of devices can be compared only if the sizes are the same, so one
 * process chooses for all. */
MUST_CHECK enum err_code rates_choose_sizes(struct device *d, struct rate_sizes *out, struct err *e);
/* The caller must call rates_close even after an error. */
MUST_CHECK enum err_code rates_open(struct device_rates *r, struct device *d, const struct rate_sizes *sizes,
                                    struct err *e);
void rates_close(struct device_rates *r);
/* Works for at least so long. *work: operations, or bytes. */
MUST_CHECK enum err_code rates_run(struct device_rates *r, enum device_rate rate, int64_t least_ns,
                                   double *work, struct err *e);

#endif
