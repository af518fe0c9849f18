#ifndef DDP_TRAINER_MEMBER_COLL_SHARED_MEMORY_H
#define DDP_TRAINER_MEMBER_COLL_SHARED_MEMORY_H

#include "trainer/member/coll/group.h"

/* Collectives of one node: a kind of group, and the inner step of the hierarchical one. root is a local rank;
 * out is by local rank. */

extern const struct coll_ops coll_shared_memory_ops;

MUST_CHECK enum err_code shared_memory_broadcast(struct coll_group *g, void *data, size_t size, int root,
                                                 struct err *e);
MUST_CHECK enum err_code shared_memory_allgather(struct coll_group *g, const void *mine, size_t size,
                                                 char *out, struct err *e);
MUST_CHECK enum err_code shared_memory_meet(struct coll_group *g, const struct coll_array *array, size_t at,
                                            size_t count, struct err *e);

/* Sums of this node's ranks, in the group's order. */
void shared_memory_sum(struct coll_group *g, float *const *in, float *const *out, int outs, size_t lo,
                       size_t hi, bool stream);
/* Part i of n of [at, at + count): cut at cache lines, so that no two ranks write one. */
void coll_slice(size_t at, size_t count, int n, int i, size_t *lo, size_t *hi);
/* Whether `count` floats of each of this node's ranks are too much for its cache, and better written past it.
 */
bool coll_streams(const struct coll_group *g, size_t count);

#endif
