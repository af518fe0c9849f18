#ifndef DDP_TRAINER_MEMBER_COLL_SHM_H
#define DDP_TRAINER_MEMBER_COLL_SHM_H

#include "trainer/member/coll/group.h"

/* The ranks of one node: a control segment that all of them map (barrier, mailboxes, a staging area), and a
 * unix socket from each to the first of them, which passes descriptors. The end of such a socket means that
 * the peer has died.
 */

/* The call that a rank is about to make. Ranks compare their intents after the first barrier of a call, so a
 * disagreement is detected. */
struct shm_intent {
    uint64_t kind, what, at, size;
};
enum shm_kind {
    SHM_ALLREDUCE = 1,
    SHM_BROADCAST,
    SHM_ALLGATHER,
    SHM_BARRIER,
    SHM_ALLOC,
    SHM_EXCHANGE,
    SHM_SCATTER,
    SHM_GATHER,
    SHM_ALLREDUCE_BF16,
    SHM_SCATTER_BF16
};

#define SHM_MAIL 4096           /* bytes of one mailbox */
#define SHM_STAGE (256u * 1024) /* bytes of one staging area */

/* Sets g->shm as soon as there is something to close, even if it fails. */
MUST_CHECK enum err_code shm_open_node(struct coll_group *g, struct coll_listener *listener, int64_t deadline,
                                       struct err *e);
void shm_close(struct coll_group *g);
/* Wakes all waiters of the node and shuts the sockets down. Any thread. */
void shm_abort(struct coll_group *g);
/* Returns the sockets to check while waiting for something else; sets *count to their number. */
const int *shm_links(const struct coll_group *g, int *count);

/* A call is: shm_begin, post mail, shm_meet, read mail. Mailboxes (one of SHM_MAIL bytes for each local rank)
 * and the staging area (SHM_STAGE bytes) belong to the call until shm_begin; see shm.c for why one barrier is
 * enough. */
void shm_begin(struct coll_group *g);
void *shm_mail(struct coll_group *g, int local);
void *shm_stage(struct coll_group *g);
/* The call's first barrier. If ranks have different intents, they get FAILED_PRECONDITION, and the group
 * ends. */
MUST_CHECK enum err_code shm_meet(struct coll_group *g, const struct shm_intent *intent, struct err *e);
/* A later barrier of the same call. */
MUST_CHECK enum err_code shm_barrier(struct coll_group *g, struct err *e);

#endif
