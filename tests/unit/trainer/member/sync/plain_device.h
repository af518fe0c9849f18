#ifndef DDP_TESTS_UNIT_TRAINER_MEMBER_SYNC_PLAIN_DEVICE_H
#define DDP_TESTS_UNIT_TRAINER_MEMBER_SYNC_PLAIN_DEVICE_H

#include "trainer/device/device.h"

/* A device of host memory that has only the operations which strategies need. Its operations, for the tables of
 * other devices: */
void plain_scale(struct device *d, float *x, size_t n, float by);
void plain_add(struct device *d, float *y, const float *x, size_t n);
void plain_copy(struct device *d, void *to, const void *from, size_t bytes);
void plain_zero(struct device *d, void *to, size_t bytes);
enum err_code plain_wait(struct device *d, struct err *e);

extern struct device plain_device;
extern struct device
    far_device; /* the same with memory that is not the host's, as far as the strategies know */

#endif
