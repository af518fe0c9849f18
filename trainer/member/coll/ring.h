#ifndef DDP_TRAINER_MEMBER_COLL_RING_H
#define DDP_TRAINER_MEMBER_COLL_RING_H

#include "trainer/member/coll/group.h"

/* A ring over the nodes: this rank sends to the rank with the same local number on the next node, and
 * receives from the rank with that number on the previous node. All ranks of a ring make the same calls. */

/* Sets g->ring as soon as there is something to close, even if it fails. */
MUST_CHECK enum err_code ring_open(struct coll_group *g, struct coll_listener *listener, int64_t deadline,
                                   struct err *e);
void ring_close(struct coll_group *g);
void ring_abort(struct coll_group *g);                 /* shuts the connections down; any thread */
int ring_ends(const struct coll_group *g, int fds[2]); /* gets the ring's connections; returns their number */
bool ring_hung_up(const struct coll_group *g);         /* whether a connection of the ring has been closed */

/* Sums in place. There are as many chunks as nodes; the sum of chunk c is taken in node order from node c on,
 * around the ring. */
MUST_CHECK enum err_code ring_allreduce(struct coll_group *g, void *data, size_t count, enum device_type type,
                                        struct err *e);
MUST_CHECK enum err_code ring_broadcast(struct coll_group *g, void *data, size_t size, int root_node,
                                        struct err *e);
/* In place: the block of node n is at data + offsets[n], up to offsets[n + 1]; this node's block is there
 * already. With blocks of one byte this is a barrier. */
MUST_CHECK enum err_code ring_allgather(struct coll_group *g, char *data, const size_t *offsets,
                                        struct err *e);

#endif
