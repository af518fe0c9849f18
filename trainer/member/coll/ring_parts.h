#ifndef DDP_TRAINER_MEMBER_COLL_RING_PARTS_H
#define DDP_TRAINER_MEMBER_COLL_RING_PARTS_H

#include "trainer/member/coll/group.h"

/* The two halves of the ring's all-reduce, with chunks that the caller chooses. */

struct ring_range {
    size_t lo, hi; /* elements of the array */
};

/* The chunk of node n is ranges[first[n]] up to ranges[first[n + 1]], at most world_size ranges in all. The same on every rank
 * of the ring. */
struct ring_chunks {
    const struct ring_range *ranges;
    const int *first; /* nodes + 1 of them */
    uint64_t digest;  /* of the plan; ranks compare it */
};

/* In place. The chunk of this node becomes the sum over the nodes, which begins with the node behind it; the others are not
 * defined afterwards. */
MUST_CHECK enum err_code ring_reduce_scatter(struct coll_group *g, void *data, const struct ring_chunks *c,
                                             enum device_type type, struct err *e);
/* In place: this node's chunk is there already. */
MUST_CHECK enum err_code ring_gather(struct coll_group *g, float *data, const struct ring_chunks *c,
                                     struct err *e);

#endif
