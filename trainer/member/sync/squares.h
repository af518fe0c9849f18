#ifndef DDP_TRAINER_MEMBER_SYNC_SQUARES_H
#define DDP_TRAINER_MEMBER_SYNC_SQUARES_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/device/device.h"

/* Sums of squares, good to about 1e-6: 512 values at a time are added up in float, these sums in double. On the host the
 * order of the additions is fixed, so all machines give the same bits. */

double squares_sum(const float *x, size_t count);                           /* x^2 */
double squares_of_difference(const float *x, const float *y, size_t count); /* (x - y)^2 */
/* The same in the pass that copies the values anyway, which makes it nearly free. The arrays do not overlap. */
double squares_scaled(float *out, const float *x, const float *y, float by, size_t count); /* out = by x */
double squares_moved(float *out, const float *x, float *y, size_t count);                  /* out = y = x */
/* Whether all are finite, which their sum of squares does not tell: it may overflow. */
bool floats_finite(const float *x, size_t count);
/* As squares_sum, of the device's memory; waits for its work. room: device memory for one double; not used on the
 * host. */
double squares_on_device(struct device *device, const float *x, size_t count, double *room);

#endif
