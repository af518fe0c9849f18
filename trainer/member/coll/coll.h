#ifndef DDP_TRAINER_MEMBER_COLL_COLL_H
#define DDP_TRAINER_MEMBER_COLL_COLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "trainer/device/array.h"
#include "trainer/device/device.h"

/* Collectives over one process group: a vtable with three kinds behind it (shared memory on one node, a TCP
 * ring across nodes with shared memory inside each node, and NCCL in the CUDA plugin). Who finds the peers is
 * not known here: their addresses, the generation key and the bootstrap id come in as bytes.
 *
 * Threads: the owner calls everything but the aborts, which any thread may call at any time, also while
 * another thread is inside a collective. After an abort or a peer's death every call returns ABORTED; the
 * owner then frees the group.
 *
 * Order and bits: sums are taken in rank order, so every rank holds the same bits, and a run repeats bit for
 * bit for the same layout (world size, ranks per node). With `tree` the sum over n ranks is that of the first
 * h plus that of the others, h the largest power of two below n, and so on down: a function of the ranks'
 * arrays alone, and, for 2^k ranks, one that can be taken further down inside each. All calls are collective:
 * every rank, same order, same counts. */

struct coll_listener; /* made before Join, so that its address can travel in it */
struct coll_group;

/* host: the address peers use to reach this node: IPv4 or IPv6, or a name, which each of them looks up (NULL:
 * 127.0.0.1). directory: where ranks of this node meet by a unix socket, absolute, made by the supervisor,
 * 0700 (NULL: nowhere, they go by TCP). */
MUST_CHECK enum err_code coll_listen(struct coll_listener **out, const char *host, const char *directory,
                                     struct err *e);
/* Opaque address for JoinRequest.address; at most 512 bytes. */
size_t coll_listener_address(const struct coll_listener *l, uint8_t *out, size_t cap);
/* Any thread, until the listener is freed: coll_abort of the group that was made with it, if there is one
 * now, whether forming or formed; and a later coll_open of this or an older generation returns ABORTED. */
void coll_listener_abort(struct coll_listener *l, int64_t generation);
void coll_listener_free(struct coll_listener *l);

struct coll_peer {
    int rank, node_rank, local_rank;
    const uint8_t *address;
    size_t address_size;
};
struct coll_config {
    int64_t job, generation;
    int rank, world_size;
    const struct coll_peer *peers; /* world_size of them, by rank */
    uint8_t key[32]; /* of this generation: both ends of every connection prove it before any tensor byte */
    const uint8_t *bootstrap; /* of the device's comm->make_id; unused where it has none */
    size_t bootstrap_size;
    bool loopback; /* all members share this node */
    bool tree;     /* sums as a binary tree over the ranks, whoever shares a node; else in rank order */
    /* Where arrays live; outlives the group. NULL, or one whose memory is the host's: in the host's. Only the
     * owner's thread works on arrays elsewhere. They are summed by the device's own collectives (comm.h) when
     * every rank's device has the same ones, and not with `tree`; else staged in the host's memory.
     * FAILED_PRECONDITION: ranks have different versions of them. */
    struct device *device;
    int timeout_ms; /* for connecting, 60,000 */
    int end_ms;     /* for coll_end, 10,000 */
};
/* Takes part in forming the group; the listener stays the caller's, must outlive the group, and serves one at
 * a time. Where it fails `out` stays as it is, but for a group that then did not end on its device: that is
 * the caller's, whose coll_end says so. */
MUST_CHECK enum err_code coll_open(struct coll_group **out, struct coll_listener *l,
                                   const struct coll_config *config, struct err *e);
/* Ends what the group has on its device; coll_close does it, too, for who does not ask. DEADLINE_EXCEEDED, as
 * often as it is asked: it did not end, the process must exit and not touch the device again. */
MUST_CHECK enum err_code coll_end(struct coll_group *g, struct err *e);
void coll_close(struct coll_group *g); /* also after an abort; NULL is fine */

/* Sets a flag and wakes every waiter; a generation older than the group's is ignored. Not during coll_close:
 * a thread that cannot know uses coll_listener_abort. */
void coll_abort(struct coll_group *g, int64_t generation);

/* From here on collectives work on the array without a copy: on shared memory the ranks of a node map each
 * other's. Collective: same sizes and order on every rank. The array stays its owner's, which closes it after
 * the group; its data may move here, and only here. RESOURCE_EXHAUSTED on all of a node's ranks when one has
 * not enough memory. After an abort it is attached to the next group as it is. */
MUST_CHECK enum err_code coll_attach(struct coll_group *g, struct device_array *array, struct err *e);
/* The same with a new array of the group's own, which ends with it. Zeroed. */
MUST_CHECK enum err_code coll_alloc(struct coll_group *g, size_t count, float **out, struct err *e);

/* In place, data inside an attached array. Sum over ranks. A device may only have been told to: what it
 * is told next comes after it. */
MUST_CHECK enum err_code coll_allreduce(struct coll_group *g, float *data, size_t count, struct err *e);
/* The same, but a device's next work is beside it, until coll_join. */
MUST_CHECK enum err_code coll_start(struct coll_group *g, float *data, size_t count, struct err *e);
MUST_CHECK enum err_code coll_join(struct coll_group *g, struct err *e);
/* In place, any memory. */
MUST_CHECK enum err_code coll_broadcast(struct coll_group *g, void *data, size_t size, int root,
                                        struct err *e);
/* out holds world_size * size bytes, by rank; any memory, for small control values. */
MUST_CHECK enum err_code coll_allgather(struct coll_group *g, const void *mine, size_t size, void *out,
                                        struct err *e);
MUST_CHECK enum err_code coll_barrier(struct coll_group *g, struct err *e);

/* Whether a second thread inside collectives pays: true across nodes (it waits for the network), false on
 * shared memory, where it would compete for the same core. The same on every rank. */
bool coll_overlaps(const struct coll_group *g);

/* Since coll_open: bytes this rank sent (TCP) or read from peers (shared memory), and nanoseconds spent
 * waiting. */
struct coll_stats {
    uint64_t bytes, wait_ns, calls;
};
void coll_get_stats(const struct coll_group *g, struct coll_stats *out);

#endif
