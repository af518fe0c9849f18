#ifndef DDP_TRAINER_MEMBER_COLL_TREE_H
#define DDP_TRAINER_MEMBER_COLL_TREE_H

#include "trainer/member/coll/group.h"

/* data[lo, hi) of this rank's array becomes the sum over all ranks of all nodes. wanted: false on a node that does not need
 * the sum and only passes the data on; its data is not defined afterwards. */
MUST_CHECK enum err_code tree_allreduce(struct coll_group *g, const struct coll_array *array, size_t lo,
                                        size_t hi, bool wanted, struct err *e);

#endif
