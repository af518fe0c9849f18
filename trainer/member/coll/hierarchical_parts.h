#ifndef DDP_TRAINER_MEMBER_COLL_HIERARCHICAL_PARTS_H
#define DDP_TRAINER_MEMBER_COLL_HIERARCHICAL_PARTS_H

#include "trainer/member/coll/group.h"

/* The calls by parts of hierarchical.c. */
MUST_CHECK enum err_code hierarchical_reduce_scatter(struct coll_group *g, const struct coll_array *array,
                                                     size_t at, const size_t *offsets, struct err *e);
MUST_CHECK enum err_code hierarchical_gather(struct coll_group *g, const struct coll_array *array, size_t at,
                                             const size_t *offsets, struct err *e);

#endif
