#ifndef DDP_TRAINER_MEMBER_SYNC_SQUARES_H
#define DDP_TRAINER_MEMBER_SYNC_SQUARES_H

#include <stddef.h>

#include "trainer/device/device.h"

/* Sums of squares in double. On the host the order of the additions is fixed, so all machines give the same bits. */

double squares_sum(const float *x, size_t count);                           /* x^2 */
double squares_of_difference(const float *x, const float *y, size_t count); /* (x - y)^2 */
/* As squares_sum, of the device's memory; waits for its work. room: device memory for one double; not used on the
 * host. */
double squares_on_device(struct device *device, const float *x, size_t count, double *room);

#endif
