#ifndef DDP_TRAINER_DEVICE_ARRAY_H
#define DDP_TRAINER_DEVICE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "trainer/device/device.h"

/* A flat array of floats that collectives can work on without a copy, and that outlives every process group:
 * a device's memory, or host memory that the other processes of this node can map. It belongs to whoever
 * opened it, one thread; a group that it is attached to (coll_attach) only borrows it.
 *
 * Host memory begins private, in huge pages where the system gives them, and moves to a memfd the first time
 * that others have to map it: `data` changes then, and only then. */
struct device_array {
    struct device *device; /* borrowed; NULL: the host */
    float *data;           /* 64-byte aligned */
    size_t count, bytes;   /* floats; memory, in whole pages */
    int fd;                /* of data's memfd; -1: private, or a device's */
    /* Processes of a group that broke may still have the pages mapped, and be in the middle of a sum: the
     * array moves before it is used in another group. */
    bool stale;
};

/* Zeroed. RESOURCE_EXHAUSTED. Closing one that failed to open, or that is all zero, is fine. */
MUST_CHECK enum err_code device_array_open(struct device_array *a, struct device *device, size_t count,
                                           struct err *e);
void device_array_close(struct device_array *a);

/* Before a group takes the array: to fresh pages where it is stale, and to a memfd where `shared`. Nothing
 * happens to a device's memory. On RESOURCE_EXHAUSTED all stays as it was. */
MUST_CHECK enum err_code device_array_place(struct device_array *a, bool shared, struct err *e);

/* A memfd with all of its pages there: so that memory that is not to be had is an error here and no SIGBUS
 * later. */
MUST_CHECK enum err_code device_shared_pages(int *fd, const char *name, size_t bytes, struct err *e);

#endif
