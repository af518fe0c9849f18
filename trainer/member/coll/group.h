#ifndef DDP_TRAINER_MEMBER_COLL_GROUP_H
#define DDP_TRAINER_MEMBER_COLL_GROUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/member/coll/coll.h"
#include "trainer/member/coll/layout.h"

/* The group, as the files of this folder share it, and the way to stop it. */

/* An abort sets a flag, an eventfd for poll(2), and the futex word of the node's control segment if it
 * exists. */
struct coll_stop {
    atomic_bool set;
    int event;
};
enum err_code coll_stopped(struct err *e); /* sets ABORTED */

/* An array of coll_attach or coll_alloc as this process sees it. */
struct coll_array {
    struct device_array *memory; /* what the caller works on: borrowed, or the group's own */
    bool owned;
    struct device_array staging; /* host memory that sums of a device's array go through; else all zero */
    float **maps;                /* by local rank; [local] is mine; NULL where nothing is summed here */
    float *on_device;            /* the caller's floats where they are a device's; else NULL */
    size_t count, bytes;         /* floats; mapped bytes */
};

struct shm;
struct ring;
struct comm;
struct coll_ops;

struct coll_group {
    const struct coll_ops *ops;
    atomic_bool formed; /* shm and ring stay as they are until coll_close: an abort from another thread may
                           use them */
    struct coll_listener *listener; /* borrowed; NULL before it knows the group */
    int64_t job, generation;
    uint8_t key[32];
    struct coll_layout layout;
    struct device *device;      /* of the arrays, borrowed; NULL: they are the host's */
    struct comm *_Atomic comm;  /* its own collectives; NULL: sums of its arrays are staged */
    int64_t looked_ms, gone_ms; /* at the connections; a peer's was found closed, 0: none was */
    int end_ms;                 /* for ending comm */
    struct err late; /* the device's group did not end: nothing of the device may be touched again */
    struct coll_stop stop;
    struct shm *shm;   /* NULL: alone on its node */
    struct ring *ring; /* NULL: one node, or this rank holds no ring */
    bool tree;
    float *gathered; /* tree.c's, kept from call to call */
    struct coll_array *arrays;
    size_t array_count, array_cap;
    size_t cache; /* bytes of the last level */
    uint64_t calls;
    _Atomic uint64_t bytes, wait_ns;
};

/* One kind of group. Arguments are checked by coll.c; every rank is in the same call. `at` is data's place in
 * `array`. */
struct coll_ops {
    const char *name;
    bool overlaps;
    enum err_code (*allreduce)(struct coll_group *g, const struct coll_array *array, size_t at, size_t count,
                               struct err *e);
    enum err_code (*broadcast)(struct coll_group *g, void *data, size_t size, int root, struct err *e);
    enum err_code (*allgather)(struct coll_group *g, const void *mine, size_t size, void *out, struct err *e);
    enum err_code (*barrier)(struct coll_group *g, struct err *e);
};
extern const struct coll_ops coll_single_ops;       /* a world of one */
extern const struct coll_ops coll_hierarchical_ops; /* several nodes: a ring between them, shared memory
                                                       inside each */

/* Ends the group after a peer's death or a protocol error: all waiters in this process and on this node wake
 * up, and the ring's peers notice at once. */
void coll_fail(struct coll_group *g);

#endif
