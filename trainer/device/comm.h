#ifndef DDP_TRAINER_DEVICE_COMM_H
#define DDP_TRAINER_DEVICE_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/device/device.h"

/* Collectives that a device runs by itself, on its own memory: NCCL's, on a GPU. They are put on a queue of
 * their own beside the device's computing queue, and run while the caller goes on. While the computing queue stands behind a
 * collective that has not ended, the device's wait calls comm_ops->check, so it returns the error of an operation that failed,
 * and notices that a peer is gone. A device has at most one communicator at a time.
 *
 * Threads: the owner's, except abort, which any thread may call at any time between open and close. */

#define COMM_MARKS 64

struct comm;
struct comm_config {
    const uint8_t *id; /* made by make_id on rank 0; the same on every rank */
    size_t id_size;
    int rank, world_size;
    /* Always the same algorithm, protocol and number of channels, even if that is slower. */
    bool reproducible;
    bool bf16;      /* allreduce_bf16 and reduce_scatter_bf16 will be called */
    int timeout_ms; /* limit for open, in milliseconds */
    int stall_ms;   /* limit for one operation, in milliseconds; 0: 600,000 */
    /* Called while open, or an operation that needs the peers, waits. An error of `watch` ends the wait and
     * becomes its result. NULL: nothing is called. */
    enum err_code (*watch)(void *arg, struct err *e);
    void *watch_arg;
};

struct comm_ops {
    const char *name;
    int (*version)(void); /* version of the library; must be the same on every rank */
    /* Sets what the library reads from the environment. Call it once, before make_id and open, and before the process
     * starts threads: when the device was opened. reproducible: as in comm_config. */
    void (*prepare)(bool reproducible);
    /* Makes the id of a new group of so many ranks; called once, in the process of rank 0. */
    enum err_code (*make_id)(int world_size, uint8_t *out, size_t cap, size_t *size, struct err *e);
    /* Collective. ABORTED: abort was called. UNAVAILABLE, DEADLINE_EXCEEDED: a peer did not take part.
     * INTERNAL: this machine or its device failed. FAILED_PRECONDITION: ranks have different versions, or
     * another error that a retry does not remove. `out` is set before open waits for anything, so that
     * another thread can abort. The caller must call close in any case. */
    enum err_code (*open)(struct comm *_Atomic *out, struct device *d, const struct comm_config *config,
                          struct err *e);
    /* Sums over ranks, in place. Runs after all operations that the device was given before this call, and
     * beside those that it is given later. If the device already has an error, its data is not valid: returns
     * that error and ends the group. Other errors as check. */
    enum err_code (*allreduce)(struct comm *c, float *data, size_t count, struct err *e);
    /* One half of such a sum (a reduce-scatter), in place. Rank r's part is data[offsets[r], offsets[r + 1]); it
     * becomes the sum over ranks, and the rest is not defined afterwards. */
    enum err_code (*reduce_scatter)(struct comm *c, float *data, const size_t *offsets, struct err *e);
    /* The same sums of values that are rounded to bf16, and added up as bf16: half the bytes. */
    enum err_code (*allreduce_bf16)(struct comm *c, float *data, size_t count, struct err *e);
    enum err_code (*reduce_scatter_bf16)(struct comm *c, float *data, const size_t *offsets, struct err *e);
    /* Rank r's part is data[from[r], to[r]), and each rank gets the others'. */
    enum err_code (*gather)(struct comm *c, float *data, const size_t *from, const size_t *to, struct err *e);
    enum err_code (*broadcast)(struct comm *c, void *data, size_t bytes, int root, struct err *e);
    /* Operations that the device is given after join run after all collectives before it. The host does not
     * wait. */
    enum err_code (*join)(struct comm *c, struct err *e);
    /* mark: remembers the collectives before it as number `mark`, below COMM_MARKS. join_mark: as join, but for these
     * alone. The device does not wait for later collectives. A number may be used again. */
    enum err_code (*mark)(struct comm *c, int mark, struct err *e);
    enum err_code (*join_mark)(struct comm *c, int mark, struct err *e);
    /* Whether the device has not passed its last join. If it has, its own work waits for no peer, although collectives may run
     * beside it. */
    bool (*busy)(struct comm *c);
    /* For how long the device has stood still in joins, of those that it has passed; its own clock measures that. */
    int64_t (*joined_ns)(struct comm *c);
    /* ABORTED: the group is over, because of an abort, a lost peer, or an operation that ran into its limit.
     * Other errors: this process's device failed. */
    enum err_code (*check)(struct comm *c, struct err *e);
    void (*abort)(struct comm *c); /* sets a flag that ends every wait */
    /* Ends the group: in order if there was no error, else by force. `c` is not valid afterwards in any case.
     * DEADLINE_EXCEEDED: the group did not end in time; the process must exit, because the group may still
     * use the device. INTERNAL: the group ended, but the library reported an error. */
    enum err_code (*close)(struct comm *c, int timeout_ms, struct err *e);
};

#endif
