#ifndef DDP_TRAINER_DEVICE_ARRAY_H
#define DDP_TRAINER_DEVICE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "trainer/device/device.h"

/* A flat array of floats that collectives work on without a copy. It outlives every process group. It is
 * device memory, or host memory that the other processes of this node can map. The thread that opened it owns
 * it; a group that it is attached to (coll_attach) borrows it.
 *
 * Host memory is private at first, in huge pages if the system has them. It moves to a memfd when other
 * processes have to map it; `data` changes only then. */
struct device_array {
    struct device *device; /* borrowed; NULL: the host */
    float *data;           /* 64-byte aligned */
    size_t count, bytes;   /* count: floats; bytes: that were allocated, on the host in whole pages */
    int fd;                /* the memfd that holds data; -1: private memory, or device memory */
    /* The array was in a group that was aborted. Other processes may still have its pages mapped, and may
     * still be adding to them, so the array must move before another group uses it. */
    bool stale;
};

/* The bytes of an array of `count` floats on the host: whole pages. */
size_t device_array_pages(size_t count);
/* Opens a zeroed array. RESOURCE_EXHAUSTED: out of memory. An array that failed to open, or is all zero, may
 * be closed. */
MUST_CHECK enum err_code device_array_open(struct device_array *a, struct device *device, size_t count,
                                           struct err *e);
void device_array_close(struct device_array *a);

/* Prepares the array for a group: moves it to new pages if it is stale, and to a memfd if `shared` is set.
 * Device memory is left alone. On RESOURCE_EXHAUSTED the array stays as it was. */
MUST_CHECK enum err_code device_array_place(struct device_array *a, bool shared, struct err *e);

/* Creates a memfd and allocates all its pages, so that a lack of memory is an error here and not a SIGBUS
 * later. */
MUST_CHECK enum err_code device_shared_pages(int *fd, const char *name, size_t bytes, struct err *e);

#endif
