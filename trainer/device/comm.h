#ifndef DDP_TRAINER_DEVICE_COMM_H
#define DDP_TRAINER_DEVICE_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/device/device.h"

/* Collectives that a device does by itself, on its own memory: NCCL's, of a GPU. They are put on a queue of
 * the device's own beside its computing and end behind the caller's back: what is in flight, an error of it
 * and a peer's death show in the device's wait, which asks comm_ops->check. One communicator a device at a
 * time.
 *
 * Threads: the owner's, but for abort, which any thread may call at any time between open and close. */

struct comm;
struct comm_config {
    const uint8_t *id; /* of make_id, the same on every rank */
    size_t id_size;
    int rank, world_size;
    bool reproducible; /* one algorithm, one protocol, a fixed number of channels, whatever it costs */
    int timeout_ms;    /* for forming */
    int stall_ms;      /* an operation in flight for longer is an error; 0: 600,000 */
    /* Asked while open, or an operation that peers must join, waits: an error ends it, and is its error.
     * NULL: nobody asks. */
    enum err_code (*watch)(void *arg, struct err *e);
    void *watch_arg;
};

struct comm_ops {
    const char *name;
    int (*version)(void); /* of the library: every rank's must be the same */
    /* By rank 0's process, once a group. */
    enum err_code (*make_id)(uint8_t *out, size_t cap, size_t *size, struct err *e);
    /* Collective. ABORTED: by `abort`; UNAVAILABLE, DEADLINE_EXCEEDED: a peer did not come; INTERNAL: this
     * machine or its device; FAILED_PRECONDITION: ranks of different versions, and other things that another
     * try does not mend.
     * `out` is set before anything is waited for, so that another thread can abort; it is the caller's to
     * close in any case. */
    enum err_code (*open)(struct comm *_Atomic *out, struct device *d, const struct comm_config *config,
                          struct err *e);
    /* Sum in place, after what the device was told to compute so far; beside what it is told later. A device
     * whose wait would end with an error has nothing to give: that is the error, and the group over. Else as
     * check. */
    enum err_code (*allreduce)(struct comm *c, float *data, size_t count, struct err *e);
    enum err_code (*broadcast)(struct comm *c, void *data, size_t bytes, int root, struct err *e);
    /* What the device is told from here on comes after everything above. The host waits for nothing. */
    enum err_code (*join)(struct comm *c, struct err *e);
    /* ABORTED once it is over: aborted, a peer gone, an operation stalled. Else it is this process's device.
     */
    enum err_code (*check)(struct comm *c, struct err *e);
    void (*abort)(struct comm *c); /* a flag, which every wait sees */
    /* Ends it, orderly when nothing is amiss, else by force. DEADLINE_EXCEEDED: it did not end in time; the
     * process must exit, since its device may still be used by it. INTERNAL: it ended, with a complaint. c is
     * gone in any case. */
    enum err_code (*close)(struct comm *c, int timeout_ms, struct err *e);
};

#endif
