#ifndef DDP_TRAINER_DEVICE_CUDA_PROFILE_H
#define DDP_TRAINER_DEVICE_CUDA_PROFILE_H

#include "base/err.h"
#include "trainer/device/device.h"

/* Measures how long the GPU works on each operation: DDP_CUDA_PROFILE=FILE. An event is recorded on the stream before
 * and after every operation. Operations of one kind and shape are one row: a line of JSON in FILE.PID, written when the
 * device is closed. Everything before `reserve` is left out, such as the measurement of the peak. Nothing is recorded
 * as a graph meanwhile, and a run is slower by some percent. */

struct cuda_device;
struct profile;

/* What an operation does at least. The time that a GPU needs for it is at least the larger one of flops / the rate of
 * its matrix products and bytes / the rate of its memory. */
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
