#ifndef DDP_TRAINER_DEVICE_CUDA_PROFILE_H
#define DDP_TRAINER_DEVICE_CUDA_PROFILE_H

#include "base/err.h"
#include "trainer/device/device.h"

/* With DDP_CUDA_PROFILE=FILE, measures how long the GPU works on each operation. An event is recorded on the stream
 * before and after every operation. Operations of one kind and shape share one row, which is a line of JSON in
 * FILE.PID, written when the device is closed. Everything before `reserve` is left out, such as the measurement of
 * the GPU's peak rate. While operations are measured, nothing is recorded as a graph, and a run is slower by a few
 * percent. */

struct cuda_device;
struct profile;

/* The least work that an operation needs. The time of a GPU is at least flops / the rate of its matrix products, and at
 * least bytes / the rate of its memory. */
struct profile_work {
    const char *name; /* of the operation; a string constant */
    char shape[56];
    double flops; /* of matrix products; 0: none */
    double bytes; /* inputs read once, outputs written once; 0: unknown */
};

/* Sets *out to NULL if the environment asks for no profile. */
MUST_CHECK enum err_code profile_open(struct profile **out, struct cuda_device *c, struct err *e);
/* Writes the file. Call it when the device has no work left. NULL is fine. */
void profile_close(struct profile *p);

/* Before and after an operation. profile_end: work is NULL if the operation did nothing. */
void profile_begin(struct profile *p);
void profile_end(struct profile *p, const struct profile_work *work);
void profile_restart(struct profile *p); /* forgets everything measured so far */

/* profile_ops.c: the device's table of operations, in which every operation is measured. Owned by the profile. */
const struct device_ops *profile_operations(struct profile *p, const struct device_ops *plain);

/* The tables of a profile, for profile_ops.c. */
struct profile_tables {
    struct device_ops plain, measured;
};
struct profile_tables *profile_tables(struct profile *p);

#endif
