#include "trainer/member/link/commit.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_codec.h"
#include "trainer/member/link/channel.h"

#define CALL_MS 10000
/* A rank may hang in its file system. The others then give this snapshot up. */
#define PARTS_WAIT_MS (10 * 60 * 1000)

void link_set_parts_wait(struct link *r, int64_t ms)
{
    r->parts_wait_ms = ms;
}

static int64_t parts_wait(const struct link *r, const struct link_snapshot *s)
{
    return (r->parts_wait_ms ? r->parts_wait_ms : PARTS_WAIT_MS) + s->patience_ms;
}

/* An older coordinator takes the first writer's call for a whole snapshot. So nothing is sent until Watch has heard that
 * the coordinator waits for all parts. */
static enum err_code parts_are_counted(struct link *r, struct err *e)
{
    int waits = 0;

    while (r->watching && !atomic_load(&r->counts_parts) && !atomic_load(&r->cancelled) && !link_over(r))
        link_pause(r, &waits);
    if (atomic_load(&r->counts_parts) >= 0)
        return ERR_OK;
    return err_set(
        e, ERR_FAILED_PRECONDITION,
        "not committed: the coordinator is older than this trainer and would not wait until all ranks have "
        "written their parts; update the coordinator");
}

/* Other ranks are still writing: waits a little, and frees the reply for the next call. */
static bool parts_pending(struct link *r, Ddp__V1__CommitSnapshotReply **reply, int *waits, int64_t until)
{
    if (!(*reply)->pending || atomic_load(&r->cancelled) || clock_boot_ms() >= until)
        return false;
    rpc_free(*reply);
    *reply = NULL;
    link_pause(r, waits);
    return true;
}

/* Calls until the coordinator has answered, and with parts until all parts are there or the time is over: *pending. */
static enum err_code commit_call(struct link *r, const Ddp__V1__CommitSnapshotRequest *q, int64_t until,
                                 bool *pending, struct err *e)
{
    Ddp__V1__CommitSnapshotReply *reply = NULL;
    int tries = 0, waits = 0;
    enum err_code rc;

    do {
        /* Do not wait for a coordinator that would refuse the snapshot. */
        if (link_over(r))
            rc = err_set(e, ERR_CANCELLED, "generation %lld is over, so its snapshot is not committed",
                         (long long)q->generation);
        else
            rc = link_call(r, "CommitSnapshot", q, (void **)&reply, CALL_MS, e);
    } while (rc ? link_call_again(r, "CommitSnapshot", e, &tries) : parts_pending(r, &reply, &waits, until));
    *pending = !rc && reply->pending;
    rpc_free(reply);
    return rc;
}

/* Gives the snapshot up for all ranks, and asks once more: it may have been committed just before. */
static enum err_code commit_give_up(struct link *r, const Ddp__V1__CommitSnapshotRequest *q,
                                    int64_t waited_ms, struct err *e)
{
    bool pending;
    struct err late = {0};

    err_set(&late, ERR_DEADLINE_EXCEEDED, "another rank has not written its part in %lld s",
            (long long)waited_ms / 1000);
    link_snapshot_failure(r, q->step, &late);
    enum err_code rc = commit_call(r, q, 0, &pending, e);
    if (!rc && !pending)
        return ERR_OK;
    return err_set(e, rc == ERR_ABORTED ? ERR_ABORTED : late.code, "%s", late.msg);
}

enum err_code link_commit_snapshot(struct link *r, const struct link_snapshot *s, struct err *e)
{
    Ddp__V1__CommitSnapshotRequest q = DDP__V1__COMMIT_SNAPSHOT_REQUEST__INIT;
    bool pending = false;

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
    enum err_code rc = s->parts ? parts_are_counted(r, e) : ERR_OK;
    if (!rc)
        rc = commit_call(r, &q, clock_boot_ms() + parts_wait(r, s), &pending, e);
    if (pending) /* the wait for other ranks was cut short, or is over */
        rc = atomic_load(&r->cancelled) ? link_cancelled(e) : commit_give_up(r, &q, parts_wait(r, s), e);
    atomic_fetch_sub(&r->committing, 1);
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

/* A generation that is over would not commit the snapshot anyway. */
static bool failure_matters(const struct link *r, const struct err *why)
{
    return r->has_coordinator && why->code != ERR_ABORTED && why->code != ERR_CANCELLED && !link_over(r);
}

/* One try. A coordinator that does not know this call is older, and does not need it. */
static enum err_code failure_call(struct link *r, int64_t step, const struct err *why, int64_t waits_ms,
                                  struct err *e)
{
    Ddp__V1__ReportSnapshotFailureRequest q = DDP__V1__REPORT_SNAPSHOT_FAILURE_REQUEST__INIT;
    CLEANUP(free_text) char *text = xstrdup(why->msg);
    void *reply = NULL;

    q.job = r->place.job;
    q.generation = r->generation;
    q.rank = r->rank;
    q.step = step;
    q.why = rpc_utf8_clean(text);
    q.waits_ms = waits_ms;
    enum err_code rc = link_call(r, "ReportSnapshotFailure", &q, &reply, CALL_MS, e);
    rpc_free(reply);
    return rc;
}

void link_snapshot_failure(struct link *r, int64_t step, const struct err *why)
{
    struct err e = {0};
    enum err_code rc = ERR_OK;
    int tries = 0;

    if (!failure_matters(r, why))
        return;
    atomic_store(&r->failed_step, step);
    atomic_store(&r->failed_generation, r->generation);
    /* As for a commit, a stop waits for an absent coordinator only for a limited time. */
    atomic_fetch_add(&r->committing, 1);
    do
        rc = failure_call(r, step, why, 0, &e);
    while (rc && link_call_again(r, "ReportSnapshotFailure", &e, &tries) && !link_over(r));
    atomic_fetch_sub(&r->committing, 1);
    if (rc)
        log_debug("failure_not_told", "why=%s", LOG_Q(e.msg));
}

void link_snapshot_waits(struct link *r, int64_t step, const struct err *why, int64_t left_ms)
{
    struct err e = {0};

    if (failure_matters(r, why) && failure_call(r, step, why, left_ms, &e))
        log_debug("wait_not_told", "why=%s", LOG_Q(e.msg));
}
