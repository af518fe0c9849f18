#ifndef DDP_TRAINER_MEMBER_COLL_COLL_H
#define DDP_TRAINER_MEMBER_COLL_COLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/net/relay_hello.h"
#include "trainer/device/array.h"
#include "trainer/device/device.h"
#include "trainer/member/coll/listener.h"

/* Collectives over one process group. There are three tables of functions: single (a world of one), shared
 * memory on one node, and hierarchical, a TCP ring across nodes with shared memory inside each node. Data
 * that differs by receiver goes over connections between all pairs of ranks instead of the ring. A
 * device may bring collectives of its own, NCCL in the CUDA plugin: device_comm.c calls these through
 * comm_ops. This module does not look for peers: the caller passes their addresses, the generation key and
 * the bootstrap id as bytes.
 *
 * Threads: the owner's thread makes all calls except the aborts. Any thread may abort at any time, also
 * while another thread is inside a collective. After an abort, or after a peer has died, every call
 * returns ABORTED, and the owner then closes the group.
 *
 * Order and bits: sums are taken in rank order. So every rank gets the same bits, and a run repeats bit
 * for bit on the same layout (world size, ranks per node). With `tree`, the sum over n ranks is the sum
 * over the first h plus the sum over the others, where h is the largest power of two below n, and so on
 * recursively. That sum depends on the ranks' arrays alone, not on the layout; with 2^k ranks each rank
 * can continue the tree over parts of its own. All calls are collective: every rank makes them, in the
 * same order, with the same counts. */

struct coll_listener; /* opened before Join, because the Join request carries its address */
struct coll_group;

/* host: the address that peers use to reach this node: IPv4, IPv6, or a name that each peer resolves. NULL:
 * 127.0.0.1. directory: an absolute path where the ranks of this node connect by unix sockets; the supervisor
 * makes it with mode 0700. NULL: they connect by TCP. */
MUST_CHECK enum err_code coll_listen(struct coll_listener **out, const char *host, const char *directory,
                                     struct err *e);
/* Opaque address for JoinRequest.address; at most 512 bytes. */
size_t coll_listener_address(const struct coll_listener *l, uint8_t *out, size_t cap);
/* Any thread, until the listener is freed: aborts the group that was opened with this listener, whether it is
 * still forming or already formed. A later coll_open of this or an older generation returns ABORTED. */
void coll_listener_abort(struct coll_listener *l, int64_t generation);
void coll_listener_free(struct coll_listener *l);

struct coll_peer {
    int rank, node_rank, local_rank;
    const uint8_t *address;
    size_t address_size;
};
/* A relay for ranks that cannot reach each other. It carries the connections between ranks, not those of a device's own
 * collectives. */
struct coll_relay {
    struct coll_address address;
    uint8_t ticket[RELAY_TICKET]; /* admits this generation's members */
};
struct coll_config {
    int64_t job, generation;
    int rank, world_size;
    const struct coll_peer *peers; /* world_size of them, by rank */
    uint8_t key[32];               /* of this generation: both ends of a connection prove that they know it */
    /* Made by the device's comm->make_id; not used if the device has no collectives. */
    const uint8_t *bootstrap;
    size_t bootstrap_size;
    bool loopback; /* all members are on this node */
    bool pairs;    /* connect every rank with every other rank, for coll_exchange */
    bool tree;     /* take sums as a binary tree over the ranks, for every layout; else in rank order */
    bool
        free_order; /* the device's own collectives may add in any order that is fast; bits need not repeat */
    bool bf16;      /* coll_start_bf16 and coll_reduce_scatter_bf16 will be called */
    /* Where the arrays are; must outlive the group. NULL, or a device with host memory: in host memory. Only
     * the owner's thread works on arrays in device memory. They are summed by the device's own collectives
     * (comm.h) if the devices of all ranks have the same ones and `tree` is not set; otherwise through host
     * memory. FAILED_PRECONDITION: ranks have different versions of these collectives. */
    struct device *device;
    const struct coll_relay *relay; /* NULL: peers are reached directly or not at all */
    int timeout_ms; /* limit for connecting, and again for `pairs` after that; default 60,000 */
    int end_ms;     /* limit for coll_end; default 10,000 */
};
/* Takes part in forming the group. The listener stays the caller's, must outlive the group, and serves one
 * group at a time. On failure `out` is not set, with one exception: if the group did not end on its device,
 * `out` gets the group, and coll_end returns the error. */
MUST_CHECK enum err_code coll_open(struct coll_group **out, struct coll_listener *l,
                                   const struct coll_config *config, struct err *e);
/* Ends the group's work on its device; coll_close does this, too. DEADLINE_EXCEEDED, also on every later
 * call: the work did not end, so the process must exit without touching the device again. */
MUST_CHECK enum err_code coll_end(struct coll_group *g, struct err *e);
/* Ends the device's own collectives alone, because a device has one communicator at a time. Aborts still reach the group, which can
 * still be used for values of the host. ABORTED: the group is over. */
MUST_CHECK enum err_code coll_leave_device(struct coll_group *g, struct err *e);
void coll_close(struct coll_group *g); /* even after an abort; NULL is fine */

/* Sets a flag and wakes every waiter. Ignored if `generation` is older than the group's. Must not run during
 * coll_close: a thread that cannot exclude this uses coll_listener_abort. */
void coll_abort(struct coll_group *g, int64_t generation);
/* Any thread, until coll_close: a descriptor for poll(2) that becomes readable when the group is over. Must not be read. */
int coll_stop_fd(const struct coll_group *g);

/* Attaches the array to the group: from here on collectives work on it without a copy, and the ranks of a
 * node map each other's arrays. Collective: same sizes and order on every rank. The caller keeps the array
 * and closes it after the group. Its `data` may move in this call, and only here. If one rank fails, all
 * ranks return an error; RESOURCE_EXHAUSTED: it has too little memory. The group can still be used, unless
 * the error is ABORTED. After an abort the array can be attached to another group. */
MUST_CHECK enum err_code coll_attach(struct coll_group *g, struct device_array *array, struct err *e);
/* Attaches a new, zeroed array that belongs to the group and ends with it. */
MUST_CHECK enum err_code coll_alloc(struct coll_group *g, size_t count, float **out, struct err *e);

/* Sum over ranks, in place; data lies inside an attached array. On a device the sum may still be running when
 * the call returns: later operations of the device come after it. */
MUST_CHECK enum err_code coll_allreduce(struct coll_group *g, float *data, size_t count, struct err *e);
/* The same, but the device's other work runs beside the sum until coll_join. */
MUST_CHECK enum err_code coll_start(struct coll_group *g, float *data, size_t count, struct err *e);
/* The same, but values cross the wire as bf16, rounded to nearest even: each rank's value, the sum over the ranks of a node,
 * the partial sum at each hop from node to node, and so the result. Half the bytes. Needs coll_config.bf16; not with `tree`. */
MUST_CHECK enum err_code coll_start_bf16(struct coll_group *g, float *data, size_t count, struct err *e);
MUST_CHECK enum err_code coll_join(struct coll_group *g, struct err *e);
/* The two halves of an all-reduce, in place, on data inside an attached array. Rank r's part is [offsets[r], offsets[r + 1])
 * of it, in floats; the offsets, world_size + 1 of them, rise from 0 and are the same on every rank. A part may be empty. Both
 * run beside the device's other work until coll_join, as coll_start.
 *
 * coll_reduce_scatter: a rank's part becomes the sum over ranks; the rest of its data is not defined afterwards. The sum has
 * the bits of coll_allreduce on one node, with `tree`, and with two nodes; on more nodes a part is added up in the order of
 * nodes, beginning behind the node that owns it. coll_gather: each rank gets the others' parts. coll_gather_ranges: the same, where
 * rank r's part is [from[r], to[r]) of the data, world_size numbers each; parts do not overlap, and what is in none stays as it is. */
MUST_CHECK enum err_code coll_reduce_scatter(struct coll_group *g, float *data, const size_t *offsets,
                                             struct err *e);
MUST_CHECK enum err_code coll_reduce_scatter_bf16(struct coll_group *g, float *data, const size_t *offsets,
                                                  struct err *e);
MUST_CHECK enum err_code coll_gather(struct coll_group *g, float *data, const size_t *offsets, struct err *e);
MUST_CHECK enum err_code coll_gather_ranges(struct coll_group *g, float *data, const size_t *from,
                                            const size_t *to, struct err *e);
/* coll_mark remembers the calls that were started so far. coll_join_mark is coll_join for these calls alone. There
 * are COMM_MARKS marks (trainer/device/comm.h), numbered from 0. */
MUST_CHECK enum err_code coll_mark(struct coll_group *g, int mark, struct err *e);
MUST_CHECK enum err_code coll_join_mark(struct coll_group *g, int mark, struct err *e);
/* Broadcasts rank root's data, in place. The data may be in any host memory. */
MUST_CHECK enum err_code coll_broadcast(struct coll_group *g, void *data, size_t size, int root,
                                        struct err *e);
/* The same for floats in the memory of coll_config.device, attached or not: by the device's own collectives if it has
 * some, else through host memory in pieces. May still be running when the call returns, as coll_allreduce. */
MUST_CHECK enum err_code coll_broadcast_floats(struct coll_group *g, float *data, size_t count, int root,
                                               struct err *e);
/* out holds world_size * size bytes, by rank; in any host memory, of any size. Across nodes each block
 * crosses each link once. `mine` may lie where it belongs in `out`. */
MUST_CHECK enum err_code coll_allgather(struct coll_group *g, const void *mine, size_t size, void *out,
                                        struct err *e);
/* Each rank sends another part of its data to each rank: the part for rank k is at mine + offsets[k], up to offsets[k +
 * 1]. out: the parts that all ranks have for this rank, by rank. The offsets, world_size + 1 of them, are the same on
 * every rank, so the parts of `out` have one size. Any host memory; needs coll_config.pairs. */
MUST_CHECK enum err_code coll_exchange(struct coll_group *g, const void *mine, const size_t *offsets,
                                       void *out, struct err *e);
MUST_CHECK enum err_code coll_barrier(struct coll_group *g, struct err *e);

/* Whether a second thread for collectives pays off: true across nodes, where it waits for the network; false
 * on shared memory, where it would compete for the same core. The same on every rank. */
bool coll_overlaps(const struct coll_group *g);

int coll_world_size(const struct coll_group *g);
int coll_nodes(const struct coll_group *g);
/* Nanoseconds for which the device has stood still for sums of its own collectives, by its own clock; -1: it has none. */
int64_t coll_joined_ns(const struct coll_group *g);
/* Since coll_open: bytes this rank sent (TCP) or read from peers (shared memory), and nanoseconds spent
 * waiting. */
struct coll_stats {
    uint64_t bytes, wait_ns, calls;
};
void coll_get_stats(const struct coll_group *g, struct coll_stats *out);

#endif
