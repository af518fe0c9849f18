#ifndef DDP_TRAINER_MEMBER_COLL_PAIRS_H
#define DDP_TRAINER_MEMBER_COLL_PAIRS_H

#include "trainer/member/coll/group.h"

/* Connections from each rank to every other rank, for data that differs by receiver: on the ring it would cross up to
 * n - 1 links. A rank connects to the rank s places after it, and is connected to by the rank s places before it, for
 * each s from 1 to n - 1. */

/* All ranks call it after a barrier, so no attempt to connect meets a rank that still opens its ring. Sets g->pairs if
 * all connections exist; otherwise ends the group. */
MUST_CHECK enum err_code pairs_open(struct coll_group *g, struct coll_listener *listener, int64_t deadline,
                                    struct err *e);
void pairs_close(struct coll_group *g);
void pairs_abort(struct coll_group *g); /* shuts the connections down; any thread */

/* As coll_exchange. */
MUST_CHECK enum err_code pairs_exchange(struct coll_group *g, const char *mine, const size_t *offsets,
                                        char *out, struct err *e);

#endif
