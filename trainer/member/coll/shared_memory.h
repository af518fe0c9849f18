#ifndef DDP_TRAINER_MEMBER_COLL_SHARED_MEMORY_H
#define DDP_TRAINER_MEMBER_COLL_SHARED_MEMORY_H

#include "trainer/member/coll/group.h"

/* Collectives of one node: a kind of group, and the step inside each node for hierarchical.c. root is a local
 * rank; out is in the order of local ranks. */

extern const struct coll_ops coll_shared_memory_ops;

MUST_CHECK enum err_code shared_memory_broadcast(struct coll_group *g, void *data, size_t size, int root,
                                                 struct err *e);
MUST_CHECK enum err_code shared_memory_allgather(struct coll_group *g, const void *mine, size_t size,
                                                 char *out, struct err *e);
MUST_CHECK enum err_code shared_memory_meet(struct coll_group *g, const struct coll_array *array, size_t at,
                                            size_t count, struct err *e);

/* The same for a call by parts: rank r's is [from[r], to[r]). kind: SHM_SCATTER or SHM_GATHER. */
MUST_CHECK enum err_code shared_memory_meet_parts(struct coll_group *g, uint64_t kind,
                                                  const struct coll_array *array, size_t at,
                                                  const size_t *from, const size_t *to, struct err *e);
/* Of the parts of all ranks: a number by which ranks compare them, and their floats together. */
uint64_t coll_parts_digest(const struct coll_group *g, const size_t *from, const size_t *to);
size_t coll_parts_floats(const struct coll_group *g, const size_t *from, const size_t *to);

/* Adds up the arrays of this node's ranks, in the group's order (rank order, or the tree's). */
void shared_memory_sum(struct coll_group *g, float *const *in, float *const *out, int outs, size_t lo,
                       size_t hi, bool stream);
/* Sets [*lo, *hi) to part i of n of [at, at + count). Parts begin at cache lines, so that no two ranks write
 * to the same line. */
void coll_slice(size_t at, size_t count, int n, int i, size_t *lo, size_t *hi);
/* Whether `count` floats of each of this node's ranks do not fit the cache together. Sums are then written
 * past the cache. */
bool coll_streams(const struct coll_group *g, size_t count);

#endif
