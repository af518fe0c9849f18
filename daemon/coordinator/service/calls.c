#include "daemon/coordinator/service/calls.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "daemon/coordinator/service/access/auth.h"
#include "daemon/coordinator/service/access/identity.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/convert.h"
#include "daemon/coordinator/service/forecasts.h"
#include "daemon/coordinator/service/handles.h"
#include "daemon/coordinator/service/pool.h"
#include "daemon/coordinator/service/service_state.h"
#include "proto/ddp.pb-c.h"

struct call *call_open(struct service *s, struct rpc_call *rpc, enum call_kind kind, bool owed)
{
    struct call *c = xcalloc(1, sizeof *c);
    *c = (struct call){.service = s, .rpc = rpc, .kind = kind, .handle = service_handle(s)};
    rpc_call_set_user(rpc, c);
    if (owed)
        handles_put(&s->calls, c->handle, c);
    return c;
}

struct call *call_take(struct service *s, uint64_t handle)
{
    return handles_take(&s->calls, handle);
}

static void call_unlink_watch(struct call *c)
{
    if (c->next)
        c->next->prev = c->prev;
    if (c->prev)
        c->prev->next = c->next;
    else
        c->service->watches = c->next;
    c->service->stats.watches--;
}

static void call_tell_gone(const struct call *c)
{
    const struct identity *who = rpc_call_identity(c->rpc);
    struct core_event event = {.kind = CORE_CALL_GONE, .call = c->handle};
    if (who && who->kind == IDENTITY_WORKER) {
        event.member.job = who->job;
        event.member.spawn = who->spawn;
    }
    commit_queue_event(c->service, &event);
}

void call_on_end(struct rpc_call *rpc, bool cancelled)
{
    struct call *c = rpc_call_user(rpc);
    (void)cancelled;
    if (!c)
        return;
    if (c->kind == CALL_WATCH_JOB)
        call_unlink_watch(c);
    else if (call_take(c->service, c->handle))
        call_tell_gone(c);
    free(c->node);
    free(c);
}

void calls_job_changed(struct service *s, int64_t job)
{
    for (struct call *c = s->watches; c; c = c->next) {
        c->dirty |= c->job == job;
        s->watches_due |= c->dirty;
    }
}

/* A watch sends the job's current status, not each change: a slow client misses intermediate states, but
 * always gets the last one. */
static void call_push_watch(struct call *c)
{
    struct err e = {0};
    struct core_job_status status = {0};
    CLEANUP(pool_release) struct pool pool = {0};
    Ddp__V1__JobStatus message;
    if (core_job_status(c->service->core, c->job, true, &status, &e) != ERR_OK) {
        rpc_call_fail(c->rpc, &e); /* retention has deleted the job */
        c->dirty = false;
        return;
    }
    convert_job(&pool, &status, true, &message);
    forecasts_fill(c->service, &pool, &status, false, &message);
    caller_hide_logs(c->service, c->rpc, &message);
    caller_hide_tell(c->service, c->rpc, &pool, &message);
    const enum err_code code = rpc_call_send(c->rpc, &message, &e);
    c->dirty = code == ERR_RESOURCE_EXHAUSTED; /* the client reads slowly: on_sendable tries again */
    if (code == ERR_OK && sm_terminal(&job_sm, (int)status.job->state))
        rpc_call_finish(c->rpc);
    else if (code == ERR_INTERNAL)
        rpc_call_fail(c->rpc, &e);
    core_job_status_release(&status);
}

void calls_push(struct service *s)
{
    s->watches_due = false;
    for (struct call *c = s->watches, *next; c; c = next) {
        next = c->next;
        if (c->dirty && !rpc_call_over(c->rpc))
            call_push_watch(c);
    }
}
