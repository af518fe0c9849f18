#ifndef DDP_TRAINER_MEMBER_COLL_HIERARCHICAL_PARTS_H
#define DDP_TRAINER_MEMBER_COLL_HIERARCHICAL_PARTS_H

#include "trainer/member/coll/group.h"
#include "trainer/member/coll/ring_parts.h"

/* The calls by parts of hierarchical.c. */
MUST_CHECK enum err_code hierarchical_reduce_scatter(struct coll_group *g, const struct coll_array *array,
                                                     size_t at, const size_t *offsets, struct err *e);
MUST_CHECK enum err_code hierarchical_gather(struct coll_group *g, const struct coll_array *array, size_t at,
                                             const size_t *from, const size_t *to, struct err *e);

/* This rank's slices of all parts, by node and local rank: the order of coll_layout.ranks. */
struct part_slices {
    struct ring_range *ranges;
    struct ring_chunks chunks;
};
void part_slices_plan(struct part_slices *out, const struct coll_group *g, size_t at, const size_t *from,
                      const size_t *to); /* rank r's part is [from[r], to[r]) */
void part_slices_release(struct part_slices *p);

#endif
