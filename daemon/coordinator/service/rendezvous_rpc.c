#include "daemon/coordinator/service/rendezvous_rpc.h"

#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/service/access/identity.h"
#include "daemon/coordinator/service/calls.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/pool.h"
#include "daemon/coordinator/service/service_state.h"
#include "proto/ddp.pb-c.h"

/* The Rendezvous service: the calls of native workers. auth.c has derived job and spawn from the token; the
 * request's body must name the same ones, and only the token's are passed to the core. */

static bool worker_refuse_call(struct service *s, struct rpc_call *rpc)
{
    struct err e = {0};
    if (commit_queue_accepts(s, &e) == ERR_OK)
        return false;
    s->stats.refused_calls++;
    rpc_call_fail_with(rpc, ERR_UNAVAILABLE, "%s", e.msg); /* makes the worker try again */
    return true;
}

/* Fails the call if the request names another worker than the token. spawn 0: this request names none. */
static bool worker_is_impostor(struct rpc_call *rpc, int64_t job, int64_t spawn)
{
    const struct identity *id = rpc_call_identity(rpc);
    if (id->job == job && (spawn == 0 || id->spawn == spawn))
        return false;
    rpc_call_fail_with(rpc, ERR_PERMISSION_DENIED, "this token belongs to another worker");
    return true;
}

static struct core_event worker_event(struct rpc_call *rpc, enum core_event_kind kind, uint64_t call)
{
    const struct identity *id = rpc_call_identity(rpc);
    struct core_event event = {.kind = kind, .call = call};
    event.member.job = id->job;
    event.member.spawn = id->spawn;
    return event;
}

/* NULL-terminated; NULL: none. */
static char **worker_names(struct pool *pool, const Ddp__V1__StateOffer *offer)
{
    if (!offer->n_elsewhere)
        return NULL;
    char **names = pool_alloc(pool, (offer->n_elsewhere + 1) * sizeof *names);
    memcpy(names, offer->elsewhere, offer->n_elsewhere * sizeof *names);
    names[offer->n_elsewhere] = NULL;
    return names;
}

static void worker_join(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__JoinRequest *m = message;
    CLEANUP(pool_release) struct pool pool = {0};
    /* -1 matches no spawn: a join must name its own. */
    if (worker_is_impostor(rpc, m->job, m->spawn ? m->spawn : -1) || worker_refuse_call(s, rpc))
        return;
    struct core_offer *offers = pool_alloc(&pool, m->n_offers * sizeof *offers);
    for (size_t i = 0; i < m->n_offers; i++) {
        const Ddp__V1__StateOffer *o = m->offers[i];
        offers[i] = (struct core_offer){o->job,      o->generation, o->step,  o->digest,
                                        o->path,     o->committed,  o->parts, worker_names(&pool, o),
                                        o->needs_all};
    }
    struct core_event event = worker_event(rpc, CORE_JOIN, call_open(s, rpc, CALL_JOIN, true)->handle);
    event.join.generation = m->generation;
    event.join.rank = m->rank;
    event.join.address = m->address.data;
    event.join.address_size = m->address.len;
    event.join.offers = offers;
    event.join.offer_count = m->n_offers;
    event.join.unusable = m->unusable;
    event.join.unusable_count = m->n_unusable;
    event.join.live_step = m->live_step;
    event.join.stays = m->stays;
    event.join.version = m->version;
    event.join.computes = m->computes;
    commit_queue_event(s, &event);
}

static void worker_put_bootstrap(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__PutBootstrapRequest *m = message;
    if (worker_is_impostor(rpc, m->job, 0) || worker_refuse_call(s, rpc))
        return;
    struct core_event event =
        worker_event(rpc, CORE_PUT_BOOTSTRAP, call_open(s, rpc, CALL_PUT_BOOTSTRAP, true)->handle);
    event.bootstrap.generation = m->generation;
    event.bootstrap.rank = m->rank;
    event.bootstrap.bytes = m->bootstrap.data;
    event.bootstrap.size = m->bootstrap.len;
    commit_queue_event(s, &event);
}

/* Watch is also served while the disk is full, if the epoch is durable. What the request says about the job file cannot be
 * recorded then; the worker says it again in its next Watch. */
static void worker_watch(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__WatchRequest *m = message;
    struct err ignored = {0};
    if (worker_is_impostor(rpc, m->job, m->spawn ? m->spawn : -1) ||
        (store_deferred(s->store) && worker_refuse_call(s, rpc)))
        return;
    struct core_event event = worker_event(rpc, CORE_WATCH, call_open(s, rpc, CALL_WATCH, true)->handle);
    event.watch.generation = m->generation;
    event.watch.failed_step = m->failed_step;
    event.watch.revision = m->revision;
    event.watch.step = m->revision_step;
    event.watch.stays = m->stays;
    event.watch.ready = m->ready;
    event.watch.broken = m->group_broken;
    event.watch.arrived = m->arrived;
    event.watch.holds = m->holds;
    event.watch.gathered = m->gathered;
    event.watch.record = commit_queue_accepts(s, &ignored) == ERR_OK;
    commit_queue_event(s, &event);
}

static void worker_commit_snapshot(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__CommitSnapshotRequest *m = message;
    if (worker_is_impostor(rpc, m->job, 0) || worker_refuse_call(s, rpc))
        return;
    struct core_event event =
        worker_event(rpc, CORE_COMMIT_SNAPSHOT, call_open(s, rpc, CALL_COMMIT_SNAPSHOT, true)->handle);
    event.snapshot.generation = m->generation;
    event.snapshot.step = m->step;
    event.snapshot.bytes = m->bytes;
    event.snapshot.parts = m->parts;
    event.snapshot.digest = m->digest;
    event.snapshot.path = m->path;
    commit_queue_event(s, &event);
}

static void worker_report_snapshot_failure(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__ReportSnapshotFailureRequest *m = message;
    if (worker_is_impostor(rpc, m->job, 0) || worker_refuse_call(s, rpc))
        return;
    struct core_event event =
        worker_event(rpc, CORE_SNAPSHOT_FAILED, call_open(s, rpc, CALL_SNAPSHOT_FAILURE, true)->handle);
    event.snapshot.generation = m->generation;
    event.snapshot.step = m->step;
    event.snapshot.why = m->why;
    event.snapshot.waits_ms = m->waits_ms;
    commit_queue_event(s, &event);
}

const struct rpc_method rendezvous_methods[] = {
    {.name = "Join", .kind = RPC_UNARY, .waits = true, .on_start = worker_join, .on_end = call_on_end},
    {.name = "PutBootstrap", .kind = RPC_UNARY, .on_start = worker_put_bootstrap, .on_end = call_on_end},
    {.name = "Watch", .kind = RPC_SERVER_STREAM, .on_start = worker_watch, .on_end = call_on_end},
    {.name = "CommitSnapshot", .kind = RPC_UNARY, .on_start = worker_commit_snapshot, .on_end = call_on_end},
    {.name = "ReportSnapshotFailure",
     .kind = RPC_UNARY,
     .on_start = worker_report_snapshot_failure,
     .on_end = call_on_end},
    {.name = NULL},
};
