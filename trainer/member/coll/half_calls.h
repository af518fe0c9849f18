#ifndef DDP_TRAINER_MEMBER_COLL_HALF_CALLS_H
#define DDP_TRAINER_MEMBER_COLL_HALF_CALLS_H

#include "trainer/member/coll/group.h"

/* Rows of coll_ops: sums as bf16, on one node and on several. Not by the tree. */
MUST_CHECK enum err_code half_allreduce(struct coll_group *g, const struct coll_array *array, size_t at,
                                        size_t count, struct err *e);
MUST_CHECK enum err_code half_reduce_scatter(struct coll_group *g, const struct coll_array *array, size_t at,
                                             const size_t *offsets, struct err *e);

#endif
