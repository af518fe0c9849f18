#ifndef DDP_CLIENT_RUN_RUN_MEMBERSHIP_H
#define DDP_CLIENT_RUN_RUN_MEMBERSHIP_H

#include "base/buf.h"
#include "base/id.h"
#include "client/connect.h"

/* This host's part in a run (JoinRun in proto/ddp.proto): a stream that is held until the job's end is known,
 * and made again when it breaks. */
struct run_membership {
    struct link *link;                      /* borrowed */
    Ddp__V1__JoinRunRequest request;        /* texts are borrowed, but: */
    char key[ID_TEXT], cluster_id[ID_TEXT]; /* who we are, and whose run it is once we are in it */
    struct rpc_stream *stream;
    Ddp__V1__RunStatus *status; /* the newest; NULL: not a member yet */
    bool answered;              /* the last try reached a coordinator, which has no run (yet, or any more) */
    int64_t away_ms;            /* since when there is no stream (boot), 0: there is one */
    int64_t retry_ms;
};

/* request: all but member and cluster_id. */
void run_membership_init(struct run_membership *m, struct link *link, const Ddp__V1__JoinRunRequest *request);
/* Waits at most wait_ms for news. ERR_OK: there may be some in status. UNAVAILABLE: the run's coordinator is
 * away, or not there yet, e says how; call again, it is tried anew. Another code is final. */
MUST_CHECK enum err_code run_membership_next(struct run_membership *m, int64_t wait_ms, struct err *e);
void run_membership_list(const struct run_membership *m, struct buf *out); /* the run's nodes: "box1, box3" */
void run_membership_leave(struct run_membership *m);                       /* before the link is closed */

#endif
