#include "trainer/member/link/commit.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_codec.h"
#include "trainer/member/link/channel.h"

#define CALL_MS 10000
/* A rank that failed says so once, and a coordinator that restarts then forgets it: the others would wait for ever. */
#define PARTS_WAIT_MS (10 * 60 * 1000)

/* Other ranks are still writing: waits a little, and frees the reply for the next call. */
static bool parts_pending(struct link *r, Ddp__V1__CommitSnapshotReply **reply, int *waits, int64_t began)
{
    if (!(*reply)->pending || atomic_load(&r->cancelled) || clock_boot_ms() - began > PARTS_WAIT_MS)
        return false;
    rpc_free(*reply);
    *reply = NULL;
    link_pause(r, waits);
    return true;
}

enum err_code link_commit_snapshot(struct link *r, const struct link_snapshot *s, struct err *e)
{
    Ddp__V1__CommitSnapshotRequest q = DDP__V1__COMMIT_SNAPSHOT_REQUEST__INIT;
    Ddp__V1__CommitSnapshotReply *reply = NULL;
    int64_t began = clock_boot_ms();
    int tries = 0, waits = 0;
    enum err_code rc;

    if (!r->has_coordinator)
        return ERR_OK;
    q.job = r->place.job;
    q.generation = r->generation;
    q.rank = r->rank;
    q.step = s->step;
    q.bytes = s->bytes;
    q.parts = s->parts;
    q.digest = (char *)(uintptr_t)(s->digest ? s->digest : "");
    q.path = (char *)(uintptr_t)(s->path ? s->path : "");
    atomic_fetch_add(&r->committing, 1);
    do {
        /* Do not wait for a coordinator that would refuse the snapshot. */
        if (link_over(r))
            rc = err_set(e, ERR_CANCELLED, "generation %lld is over, so its snapshot is not committed",
                         (long long)q.generation);
        else
            rc = link_call(r, "CommitSnapshot", &q, (void **)&reply, CALL_MS, e);
    } while (rc ? link_call_again(r, "CommitSnapshot", e, &tries) : parts_pending(r, &reply, &waits, began));
    atomic_fetch_sub(&r->committing, 1);
    if (!rc && reply->pending)
        rc = atomic_load(&r->cancelled)
                 ? link_cancelled(e) /* the wait for other ranks was cut short */
                 : err_set(e, ERR_DEADLINE_EXCEEDED, "another rank has not written its part in %d minutes",
                           PARTS_WAIT_MS / 60000);
    rpc_free(reply);
    /* The Watch thread ended the wait. The snapshot is complete on disk, and the next generation may offer
     * it. */
    if (rc && atomic_load(&r->given_up)) {
        log_warn("snapshot_not_committed",
                 "job=%lld step=%lld path=%s why=\"the coordinator does not answer, and the job is to stop\"",
                 (long long)r->place.job, (long long)s->step, LOG_Q(s->path));
        return link_cancelled(e);
    }
    if (rc && atomic_load(&r->cancelled))
        return link_cancelled(e);
    return rc ? err_wrap(e, "commit the snapshot of step %lld", (long long)s->step) : ERR_OK;
}

/* A coordinator that does not know this call is older, and does not need it. */
void link_snapshot_failure(struct link *r, int64_t step, const struct err *why)
{
    Ddp__V1__ReportSnapshotFailureRequest q = DDP__V1__REPORT_SNAPSHOT_FAILURE_REQUEST__INIT;
    CLEANUP(free_text) char *text = xstrdup(why->msg);
    void *reply = NULL;
    struct err e = {0};
    int tries = 0;
    enum err_code rc;

    if (!r->has_coordinator || why->code == ERR_ABORTED || why->code == ERR_CANCELLED)
        return; /* the generation is over, so the snapshot would not be committed anyway */
    q.job = r->place.job;
    q.generation = r->generation;
    q.rank = r->rank;
    q.step = step;
    q.why = rpc_utf8_clean(text);
    do {
        if (link_over(r))
            return;
        rc = link_call(r, "ReportSnapshotFailure", &q, &reply, CALL_MS, &e);
    } while (rc && link_call_again(r, "ReportSnapshotFailure", &e, &tries));
    rpc_free(reply);
    if (rc)
        log_debug("failure_not_told", "why=%s", LOG_Q(e.msg));
}
