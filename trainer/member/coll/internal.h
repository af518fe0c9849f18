#ifndef DDP_TRAINER_MEMBER_COLL_INTERNAL_H
#define DDP_TRAINER_MEMBER_COLL_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/member/coll/coll.h"

/* What the files of this folder share: the group, its layout, and the one way of stopping it. */

#define COLL_MAX_ADDRESS 512

/* Addresses, listener.c. */
struct coll_address {
    char host[104]; /* literal without brackets, or a name */
    uint16_t port;
    char path[400]; /* unix socket, or "": meets nobody on its node */
};
MUST_CHECK enum err_code coll_address_decode(struct coll_address *out, const uint8_t *data, size_t size,
                                             struct err *e);
/* Starts a nonblocking connect; EINPROGRESS is success. */
MUST_CHECK enum err_code coll_connect_tcp(int *fd, const struct coll_address *to, struct err *e);
MUST_CHECK enum err_code coll_connect_unix(int *fd, const struct coll_address *to, struct err *e);
int coll_listener_tcp(const struct coll_listener *l);
int coll_listener_unix(const struct coll_listener *l); /* -1: none */
struct coll_group;
/* Between these two an abort of the listener reaches the group. ABORTED: it is over before it began; still to
 * end. */
MUST_CHECK enum err_code coll_listener_begin(struct coll_listener *l, struct coll_group *g, struct err *e);
void coll_listener_end(struct coll_listener *l);

/* Who sits where. Nodes are numbered by their lowest rank; ranks of one node by rank. Two ranks share a node
 * when their node_rank is the same and their unix sockets are in the same directory. */
struct coll_layout {
    int world_size, rank;
    int nodes, node;   /* count; mine */
    int locals, local; /* ranks on my node; my place among them */
    int rings;         /* ranks of each node that hold a ring across nodes: of the smallest node, all */
    bool aligned;      /* nodes hold as many ranks each, a power of two of them, one after the other */
    int *node_of;      /* by rank */
    int *local_of;     /* by rank */
    int *node_size;    /* by node */
    int *first;        /* by node: where its ranks start in `ranks` */
    int *ranks;        /* by (node, local) */
    struct coll_address *addresses; /* by rank */
};
MUST_CHECK enum err_code coll_layout_init(struct coll_layout *out, const struct coll_config *config,
                                          struct err *e);
void coll_layout_release(struct coll_layout *l);
static inline int coll_layout_rank(const struct coll_layout *l, int node, int local)
{
    return l->ranks[l->first[node] + local];
}

/* The abort: a flag, an eventfd for poll(2), and the futex word of the node's control segment once there is
 * one. */
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
extern const struct coll_ops coll_solo_ops; /* a world of one */
extern const struct coll_ops coll_node_ops; /* one node: shared memory */
extern const struct coll_ops
    coll_wide_ops; /* several nodes: a ring between them, shared memory inside each */

/* On the node alone; also the inner step of the wide kind. root is a local rank; out is by local rank. */
MUST_CHECK enum err_code node_broadcast(struct coll_group *g, void *data, size_t size, int root,
                                        struct err *e);
MUST_CHECK enum err_code node_allgather(struct coll_group *g, const void *mine, size_t size, char *out,
                                        struct err *e);
MUST_CHECK enum err_code node_meet(struct coll_group *g, const struct coll_array *array, size_t at,
                                   size_t count, struct err *e);

/* comm.c: the device's own collectives, where all ranks have them. */
MUST_CHECK enum err_code comm_form(struct coll_group *g, const struct coll_config *config, int64_t deadline,
                                   struct err *e);
void comm_abort(struct coll_group *g); /* any thread */

/* staged.c: sums of an array in the device's memory, by way of host memory */
MUST_CHECK enum err_code staged_allreduce(struct coll_group *g, const struct coll_array *a, size_t at,
                                          size_t count, struct err *e);

/* Part i of n of [at, at + count): cut at cache lines, so that no two ranks write one. */
void coll_slice(size_t at, size_t count, int n, int i, size_t *lo, size_t *hi);
/* Whether `count` floats of each of this node's ranks are too much for its cache, and better written past it.
 */
bool coll_streams(const struct coll_group *g, size_t count);

/* Sums of this node's ranks, in the group's order. */
void node_sum(struct coll_group *g, float *const *in, float *const *out, int outs, size_t lo, size_t hi,
              bool stream);
/* tree.c: data[lo, hi) of this rank's array becomes the sum over all ranks of all nodes. */
MUST_CHECK enum err_code tree_allreduce(struct coll_group *g, const struct coll_array *array, size_t lo,
                                        size_t hi, struct err *e);

/* Ends the group from within, after a peer's death or a protocol error: every waiter of this process and node
 * wakes, and the peers of the ring see it at once. */
void coll_fail(struct coll_group *g);

#endif
