#ifndef DDP_TRAINER_DEVICE_ARRAY_H
#define DDP_TRAINER_DEVICE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "trainer/device/device.h"

/* A flat array of floats that collectives work on without a copy, and that outlives every process group: device
 * memory, or host memory that the other processes of this node can map. The thread that opened it owns it; a
 * group that it is attached to (coll_attach) borrows it.
 *
 * Host memory is private at first, in huge pages if the system has them. It moves to a memfd when other
 * processes have to map it; `data` changes only then. */
struct device_array {
    struct device *device; /* borrowed; NULL: the host */
    float *data;           /* 64-byte aligned */
    size_t count, bytes;   /* floats; memory, in whole pages */
    int fd;                /* of data's memfd; -1: private, or a device's */
    /* The array was in a group that was aborted. Other processes may still have its pages mapped, and may still
     * be adding to them, so it must move before another group uses it. */
    bool stale;
};

/* Zeroed. RESOURCE_EXHAUSTED. Closing one that failed to open, or that is all zero, is fine. */
MUST_CHECK enum err_code device_array_open(struct device_array *a, struct device *device, size_t count,
                                           struct err *e);
void device_array_close(struct device_array *a);

/* Prepares the array for a group: moves it to new pages if it is stale, and to a memfd if `shared` is set.
 * Device memory is left alone. On RESOURCE_EXHAUSTED the array stays as it was. */
MUST_CHECK enum err_code device_array_place(struct device_array *a, bool shared, struct err *e);

/* A memfd whose pages are all allocated: a lack of memory is then an error here instead of a SIGBUS later. */
MUST_CHECK enum err_code device_shared_pages(int *fd, const char *name, size_t bytes, struct err *e);

#endif
