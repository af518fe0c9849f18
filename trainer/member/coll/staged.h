#ifndef DDP_TRAINER_MEMBER_COLL_STAGED_H
#define DDP_TRAINER_MEMBER_COLL_STAGED_H

#include "trainer/member/coll/group.h"

/* Sums of an array in the device's memory, by way of host memory */
MUST_CHECK enum err_code staged_allreduce(struct coll_group *g, const struct coll_array *a, size_t at,
                                          size_t count, enum device_type wire, struct err *e);
/* The parts of coll_reduce_scatter and coll_gather. */
MUST_CHECK enum err_code staged_reduce_scatter(struct coll_group *g, const struct coll_array *a, size_t at,
                                               const size_t *offsets, enum device_type wire, struct err *e);
MUST_CHECK enum err_code staged_gather(struct coll_group *g, const struct coll_array *a, size_t at,
                                       const size_t *from, const size_t *to, struct err *e);

#endif
