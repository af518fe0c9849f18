#ifndef DDP_TRAINER_MEMBER_COLL_GROUP_H
#define DDP_TRAINER_MEMBER_COLL_GROUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/member/coll/coll.h"
#include "trainer/member/coll/layout.h"

/* The process group, which only the files of this folder see, and the way to stop it. */

/* An abort sets a flag, an eventfd for poll(2), and the futex word of the node's control segment if it
 * exists. */
struct coll_stop {
    atomic_bool set;
    int event;
};
enum err_code coll_stopped(struct err *e); /* sets ABORTED */

/* An array of coll_attach or coll_alloc as this process sees it. */
struct coll_array {
    struct device_array *memory; /* the caller's array: borrowed, or owned by the group if `owned` */
    bool owned;
    struct device_array staging; /* host memory for the sums of an array in device memory; else all zero */
    float **maps;     /* by local rank, this rank's own included; NULL: sums are not taken in host memory */
    float *on_device; /* the caller's floats if they are device memory; else NULL */
    size_t count, bytes; /* count: floats; bytes: size of each mapping */
};

struct shm;
struct flow;
struct pairs;
struct comm;
struct coll_ops;

struct coll_group {
    const struct coll_ops *ops;
    /* True: shm and ring stay until coll_close, so an abort by another thread may use them. */
    atomic_bool formed;
    /* Set while the pairs are being opened: no rank leaves in order meanwhile, so a closed connection of the ring means that a
     * peer is lost. Later it may also mean that a peer on another node has ended after the last call. */
    bool opening_pairs;
    struct coll_listener *listener; /* borrowed; NULL before coll_listener_begin */
    int64_t job, generation;
    uint8_t key[32];
    struct coll_layout layout;
    struct device *device;     /* device of the arrays, borrowed; NULL: the arrays are in host memory */
    struct comm *_Atomic comm; /* the device's own collectives; NULL: sums go through host memory */
    /* Times when the connections were last checked, and when one was found closed (0: never) */
    int64_t looked_ms, gone_ms;
    int end_ms;      /* limit for ending comm */
    struct err late; /* set if comm did not end: the device must not be used any more */
    struct coll_stop stop;
    struct shm *shm;   /* NULL: this rank is alone on its node */
    struct flow *ring; /* NULL: there is one node only, or this rank is not on a ring */
    bool ring_short;   /* all connections of the ring are short paths (send_buffer.h) */
    /* NULL: coll_config.pairs is not set, there is one node only, or the connections are not open yet */
    struct pairs *_Atomic pairs;
    struct coll_relay relay; /* for peers that are not reached directly; no host: there is none */
    bool *relayed;           /* by rank and end (relay_path.h); NULL: there is no relay */
    bool tree, bf16;         /* as in coll_config */
    float *gathered;         /* memory of tree.c, kept from call to call */
    struct coll_array *arrays;
    size_t array_count, array_cap;
    size_t cache;           /* size of the CPU's last-level cache, in bytes */
    _Atomic uint64_t calls; /* counted by the thread of an exchange, too */
    _Atomic uint64_t bytes, wait_ns;
};

/* One kind of group. coll.c has checked the arguments, and every rank is in the same call. `at` is the
 * position of the data in `array`, in floats. */
struct coll_ops {
    const char *name;
    bool overlaps;
    enum err_code (*allreduce)(struct coll_group *g, const struct coll_array *array, size_t at, size_t count,
                               struct err *e);
    /* See coll_reduce_scatter; the data is offsets[world_size] floats at `at`. */
    enum err_code (*reduce_scatter)(struct coll_group *g, const struct coll_array *array, size_t at,
                                    const size_t *offsets, struct err *e);
    /* See coll_gather_ranges. */
    enum err_code (*gather)(struct coll_group *g, const struct coll_array *array, size_t at,
                            const size_t *from, const size_t *to, struct err *e);
    /* The same sums, which cross the wire as bf16; not by the tree. */
    enum err_code (*allreduce_bf16)(struct coll_group *g, const struct coll_array *array, size_t at,
                                    size_t count, struct err *e);
    enum err_code (*reduce_scatter_bf16)(struct coll_group *g, const struct coll_array *array, size_t at,
                                         const size_t *offsets, struct err *e);
    enum err_code (*broadcast)(struct coll_group *g, void *data, size_t size, int root, struct err *e);
    enum err_code (*allgather)(struct coll_group *g, const void *mine, size_t size, void *out, struct err *e);
    enum err_code (*exchange)(struct coll_group *g, const void *mine, const size_t *offsets, void *out,
                              struct err *e);
    enum err_code (*barrier)(struct coll_group *g, struct err *e);
};
extern const struct coll_ops coll_single_ops;       /* a world of one */
extern const struct coll_ops coll_hierarchical_ops; /* several nodes: a ring between them, shared memory
                                                       inside each */

/* Ends the group after a peer's death or a protocol error: all waiters in this process and on this node wake
 * up, and the ring's peers notice at once. */
void coll_fail(struct coll_group *g);

/* The begin of each call: counts it. ABORTED: the group is over. */
MUST_CHECK enum err_code coll_call_begin(struct coll_group *g, struct err *e);
/* The array in which [data, data + count) lies; *at: where in it, in floats. NULL: in none. */
const struct coll_array *coll_find_array(const struct coll_group *g, const float *data, size_t count,
                                         size_t *at);
/* Ends the group after an error of the device's own collectives; returns its code. */
enum err_code coll_comm_failed(struct coll_group *g, const struct err *e);

#endif
