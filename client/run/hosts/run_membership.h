#ifndef DDP_CLIENT_RUN_HOSTS_RUN_MEMBERSHIP_H
#define DDP_CLIENT_RUN_HOSTS_RUN_MEMBERSHIP_H

#include "base/buf.h"
#include "base/crypto/id.h"
#include "client/connect.h"

/* This host's membership in a run (the RPC JoinRun in proto/ddp.proto): a stream that stays open until the
 * end of the job is known, and that is opened again when it breaks. One thread. */
struct run_membership {
    struct link *link;                      /* borrowed */
    Ddp__V1__JoinRunRequest request;        /* its texts are borrowed, except the two below */
    char key[ID_TEXT], cluster_id[ID_TEXT]; /* identifies this member; the run's cluster, once joined */
    struct rpc_stream *stream;
    Ddp__V1__RunStatus *status; /* the newest; NULL: not a member yet */
    bool answered;              /* the last attempt reached a coordinator that has no run yet, or no longer */
    int64_t away_ms;            /* since when there is no stream (boot), 0: there is one */
    int64_t retry_ms;           /* when the next attempt is made (boot) */
};

/* request: everything but the fields member and cluster_id. */
void run_membership_init(struct run_membership *m, struct link *link, const Ddp__V1__JoinRunRequest *request);
/* Waits at most wait_ms for a new status. ERR_OK: m->status may be new. UNAVAILABLE: the run's coordinator
 * does not answer, or does not exist yet; call again, and the stream is opened again. Any other code is
 * final. */
MUST_CHECK enum err_code run_membership_next(struct run_membership *m, int64_t wait_ms, struct err *e);
void run_membership_list(const struct run_membership *m, struct buf *out); /* the run's nodes: "box1, box3" */
void run_membership_leave(struct run_membership *m);                       /* before the link is closed */

#endif
