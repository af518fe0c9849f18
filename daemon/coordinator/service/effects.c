#include "daemon/coordinator/service/effects.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "daemon/coordinator/service/agent_rpc.h"
#include "daemon/coordinator/service/calls.h"
#include "daemon/coordinator/service/convert.h"
#include "daemon/coordinator/service/handles.h"
#include "daemon/coordinator/service/logs/log_tails_rpc.h"
#include "daemon/coordinator/service/logs/logs.h"
#include "daemon/coordinator/service/members.h"
#include "daemon/coordinator/service/pool.h"
#include "daemon/coordinator/service/relays.h"
#include "daemon/coordinator/service/service_state.h"
#include "daemon/coordinator/service/snapshot_query.h"
#include "proto/ddp.pb-c.h"

/* Carries out the core's effects: replies to calls, messages to agents, and marks on streams that are sent at
 * the end of the turn. Runs after the commit. A function here must not hand the core an event, since the
 * effects that follow would belong to an older state. */

static void reply_submit(struct call *c, const struct core_effect *f)
{
    Ddp__V1__SubmitJobReply reply = DDP__V1__SUBMIT_JOB_REPLY__INIT;
    reply.job = f->job;
    reply.existed = f->existed;
    reply.checked_now = true;
    reply.keeps_env = true;
    reply.warnings = f->texts;
    reply.n_warnings = strv_len(f->texts);
    rpc_call_reply(c->rpc, &reply);
}

static void reply_cancel(struct service *s, struct call *c)
{
    Ddp__V1__CancelJobReply reply = DDP__V1__CANCEL_JOB_REPLY__INIT;
    const struct job_record *job = core_job(s->core, c->job);
    reply.state = (char *)(uintptr_t)(job ? sm_name(&job_sm, (int)job->state) : "cancelled");
    rpc_call_reply(c->rpc, &reply);
}

static void reply_change(struct service *s, struct call *c)
{
    Ddp__V1__ChangeJobReply reply = DDP__V1__CHANGE_JOB_REPLY__INIT;
    const struct job_record *job = core_job(s->core, c->job);
    if (job)
        reply.state = (char *)(uintptr_t)sm_name(&job_sm, (int)job->state);
    rpc_call_reply(c->rpc, &reply);
}

static void reply_delete(struct call *c, const struct core_effect *f)
{
    Ddp__V1__DeleteJobReply reply = DDP__V1__DELETE_JOB_REPLY__INIT;
    reply.n_keep_logs = strv_len(f->texts);
    reply.keep_logs = f->texts;
    rpc_call_reply(c->rpc, &reply);
}

static void reply_tune(struct service *s, const struct call *c, const struct core_effect *f)
{
    CLEANUP(pool_release) struct pool pool = {0};
    Ddp__V1__TuneJobReply reply = DDP__V1__TUNE_JOB_REPLY__INIT;
    const struct job_record *job = core_job(s->core, c->job);
    reply.n_changes = strv_len(f->texts) / 3;
    reply.changes = pool_alloc(&pool, reply.n_changes * sizeof *reply.changes);
    for (size_t i = 0; i < reply.n_changes; i++) {
        Ddp__V1__TunedValue *change = reply.changes[i] = pool_alloc(&pool, sizeof *change);
        ddp__v1__tuned_value__init(change);
        change->key = f->texts[3 * i];
        change->from = f->texts[3 * i + 1];
        change->to = f->texts[3 * i + 2];
    }
    reply.when = (char *)(uintptr_t)f->when;
    reply.revision = f->revision;
    if (job)
        reply.state = (char *)(uintptr_t)sm_name(&job_sm, (int)job->state);
    rpc_call_reply(c->rpc, &reply);
}

static void reply_node(struct service *s, struct call *c)
{
    struct err e = {0};
    struct core_node_status status = {0};
    CLEANUP(pool_release) struct pool pool = {0};
    Ddp__V1__NodeReply reply = DDP__V1__NODE_REPLY__INIT;
    Ddp__V1__NodeStatus node;
    if (core_node_status(s->core, c->node, service_now(), &status, &e) == ERR_OK) {
        convert_node(&pool, &status, service_now(), &node);
        reply.node = &node;
    }
    rpc_call_reply(c->rpc, &reply); /* without a node after `forget` */
    core_node_status_release(&status);
}

static void reply_commit(struct call *c, const struct core_effect *f)
{
    Ddp__V1__CommitSnapshotReply reply = DDP__V1__COMMIT_SNAPSHOT_REPLY__INIT;
    reply.pending = f->pending;
    rpc_call_reply(c->rpc, &reply);
}

static void effect_reply(struct service *s, const struct core_effect *f)
{
    struct call *c = call_take(s, f->call);
    if (!c)
        return; /* the client has gone */
    if (f->err.code != ERR_OK) {
        rpc_call_fail(c->rpc, &f->err);
        return;
    }
    switch (c->kind) {
    case CALL_SUBMIT:
        reply_submit(c, f);
        return;
    case CALL_CANCEL:
        reply_cancel(s, c);
        return;
    case CALL_CHANGE:
        reply_change(s, c);
        return;
    case CALL_DELETE:
        reply_delete(c, f);
        return;
    case CALL_TUNE:
        reply_tune(s, c, f);
        return;
    case CALL_NODE:
        reply_node(s, c);
        return;
    case CALL_PUT_BOOTSTRAP:
        rpc_call_reply(c->rpc, &(Ddp__V1__PutBootstrapReply)DDP__V1__PUT_BOOTSTRAP_REPLY__INIT);
        return;
    case CALL_COMMIT_SNAPSHOT:
        reply_commit(c, f);
        return;
    case CALL_SNAPSHOT_FAILURE:
        rpc_call_reply(c->rpc,
                       &(Ddp__V1__ReportSnapshotFailureReply)DDP__V1__REPORT_SNAPSHOT_FAILURE_REPLY__INIT);
        return;
    case CALL_JOIN:
    case CALL_WATCH:
    case CALL_WATCH_JOB:
        break; /* the core answers these with other effects, or does not know them */
    }
    BUG_ON(true);
}

static void join_fill_peers(struct service *s, struct pool *pool, const struct core_effect *f,
                            Ddp__V1__JoinReply *reply)
{
    reply->n_peers = (size_t)reply->world_size;
    reply->peers = pool_alloc(pool, reply->n_peers * sizeof *reply->peers);
    reply->loopback = true;
    for (int i = 0; i < reply->world_size; i++) {
        const struct rank_record *r = core_rank(s->core, f->job, f->generation, i);
        Ddp__V1__Peer *peer = reply->peers[i] = pool_alloc(pool, sizeof *peer);
        BUG_ON(!r);
        ddp__v1__peer__init(peer);
        peer->rank = r->rank;
        peer->node = r->node;
        peer->local_rank = r->local_rank;
        peer->node_rank = r->node_rank;
        peer->address = (ProtobufCBinaryData){r->address_size, r->address};
        reply->loopback = reply->loopback && r->node_rank == 0;
    }
}

static void join_fill_source(const struct generation_record *g, Ddp__V1__StateOffer *source,
                             Ddp__V1__JoinReply *reply)
{
    reply->source_rank = g->source_rank;
    if (g->source_rank < 0)
        return;
    ddp__v1__state_offer__init(source);
    source->job = g->job;
    source->generation = g->source_generation;
    source->step = g->source_step;
    reply->live = core_generation_is_live(g);
    if (!reply->live) { /* else there are no files */
        source->digest = g->source_digest;
        source->path = g->source_path;
        source->committed = true;
    }
    reply->source = source;
}

#define TELL_COMMITTED 32 /* a directory keeps fewer, unless snapshot.keep says otherwise */

static void join_fill_committed(struct service *s, struct pool *pool, int64_t job, Ddp__V1__JoinReply *reply)
{
    const struct snapshot_record *newest[TELL_COMMITTED];
    reply->n_committed = core_committed_snapshots(s->core, job, newest, TELL_COMMITTED);
    reply->committed = pool_alloc(pool, reply->n_committed * sizeof *reply->committed);
    for (size_t i = 0; i < reply->n_committed; i++) {
        Ddp__V1__StateOffer *o = reply->committed[i] = pool_alloc(pool, sizeof *o);
        ddp__v1__state_offer__init(o);
        o->job = job;
        o->generation = newest[i]->generation;
        o->step = newest[i]->step;
        o->digest = newest[i]->digest;
        o->committed = true;
    }
}

static void effect_join(struct service *s, const struct core_effect *f)
{
    struct call *c = call_take(s, f->call);
    if (!c)
        return;
    CLEANUP(pool_release) struct pool pool = {0};
    Ddp__V1__JoinReply reply = DDP__V1__JOIN_REPLY__INIT;
    Ddp__V1__StateOffer source;
    uint8_t ticket[RELAY_TICKET];
    reply.state = (Ddp__V1__JoinState)f->state;
    reply.source_rank = -1;
    if (f->state != CORE_JOIN_PENDING) {
        const struct generation_record *g = core_generation(s->core, f->job, f->generation);
        BUG_ON(!g);
        reply.world_size = g->world_size;
        reply.generation_key = (ProtobufCBinaryData){sizeof g->key, (uint8_t *)(uintptr_t)g->key};
        reply.bootstrap = (ProtobufCBinaryData){g->bootstrap_size, g->bootstrap};
        join_fill_peers(s, &pool, f, &reply);
        join_fill_source(g, &source, &reply);
        join_fill_committed(s, &pool, f->job, &reply);
        relays_fill_join(s, f->job, f->generation, ticket, &reply);
        const struct job_record *job = core_job(s->core, f->job);
        reply.scratch_generation = job->scratch_generation;
        if (f->rank == 0 && job->revision) {
            reply.revision = job->revision;
            reply.job_file = job->job_file;
        }
    }
    rpc_call_reply(c->rpc, &reply);
}

static void effect_watch(struct service *s, const struct core_effect *f)
{
    struct call *c = handles_get(&s->calls, f->call);
    struct err e = {0};
    if (!c)
        return;
    Ddp__V1__WatchReply reply = DDP__V1__WATCH_REPLY__INIT;
    reply.member = f->member;
    reply.wait = f->wait;
    reply.generation = f->generation;
    reply.rank = f->rank;
    reply.stop = f->stop;
    reply.handover = f->handover;
    reply.hold = f->hold;
    reply.late = f->late;
    reply.counts_parts = true;
    const struct job_record *job = f->tune ? core_job(s->core, f->job) : NULL;
    if (job) {
        reply.revision = job->revision;
        reply.job_file = job->job_file;
    }
    /* A worker that reconnects gets the current state again, so a dropped message does no harm. */
    if (rpc_call_send(c->rpc, &reply, &e) != ERR_OK) {
        rpc_call_fail_with(c->rpc, ERR_UNAVAILABLE, "the worker reads its watch too slowly: reconnect");
    } else if (!f->member && !f->wait) { /* the worker is no longer a member: nothing follows */
        call_take(s, f->call);
        rpc_call_finish(c->rpc);
    }
}

static enum err_code welcome_send(struct service *s, struct agent_session *session, int64_t epoch)
{
    struct err e = {0};
    Ddp__V1__Welcome welcome = DDP__V1__WELCOME__INIT;
    Ddp__V1__AgentDown down = DDP__V1__AGENT_DOWN__INIT;
    welcome.cluster_id = (char *)(uintptr_t)store_cluster_id(s->store);
    welcome.epoch = epoch;
    welcome.heartbeat_ms = (int32_t)s->options->core.heartbeat_ms;
    welcome.log_tail_rate = log_tails_rate(s);
    down.body_case = DDP__V1__AGENT_DOWN__BODY_WELCOME;
    down.welcome = &welcome;
    return agent_session_send(session, &down, &e);
}

/* Agents must not hear of an epoch that is not durable yet, so this names the one before. */
void effects_welcome_waiting(struct service *s, struct agent_session *session)
{
    if (welcome_send(s, session, store_epoch(s->store) - 1) == ERR_OK)
        log_info("session_waits", "node=%s why=\"the new epoch is not durable yet\"", LOG_Q(session->node));
}

static void effect_welcome(struct service *s, struct agent_session *session)
{
    if (welcome_send(s, session, store_epoch(s->store)) != ERR_OK)
        return;
    session->welcomed = true;
    log_info("session_open", "node=%s peer=%s", LOG_Q(session->node),
             LOG_Q(rpc_call_peer(session->rpc)->address));
    logs_node_changed(s, session->node);
}

void effects_ack(struct agent_session *session, int64_t sequence, int64_t heartbeat_ms)
{
    struct err e = {0};
    Ddp__V1__HeartbeatAck ack = DDP__V1__HEARTBEAT_ACK__INIT;
    Ddp__V1__AgentDown down = DDP__V1__AGENT_DOWN__INIT;
    ack.sequence = sequence;
    ack.heartbeat_ms = (int32_t)heartbeat_ms;
    ack.log_tail_rate = log_tails_rate(session->service);
    down.body_case = DDP__V1__AGENT_DOWN__BODY_ACK;
    down.ack = &ack;
    if (agent_session_send(session, &down, &e) != ERR_OK)
        log_debug("ack_dropped", "node=%s why=%s", LOG_Q(session->node),
                  LOG_Q(e.msg)); /* the next acknowledgement renews the leases, too */
}

/* `ddpctl undrain`: the node's sick GPUs may be used again. */
static void effect_clear_gpu_problems(struct agent_session *session)
{
    struct err e = {0};
    Ddp__V1__ClearGpuFaults clear = DDP__V1__CLEAR_GPU_FAULTS__INIT;
    Ddp__V1__AgentDown down = DDP__V1__AGENT_DOWN__INIT;
    down.body_case = DDP__V1__AGENT_DOWN__BODY_CLEAR_GPU_FAULTS;
    down.clear_gpu_faults = &clear;
    if (agent_session_send(session, &down, &e) != ERR_OK)
        log_warn("clear_gpu_faults_dropped", "node=%s why=%s", LOG_Q(session->node), LOG_Q(e.msg));
}

/* The logs of a node that does not get this message stay until they expire. */
static void effect_delete_logs(struct agent_session *session, int64_t job)
{
    struct err e = {0};
    Ddp__V1__DeleteLogs logs = DDP__V1__DELETE_LOGS__INIT;
    Ddp__V1__AgentDown down = DDP__V1__AGENT_DOWN__INIT;
    logs.job = job;
    down.body_case = DDP__V1__AGENT_DOWN__BODY_DELETE_LOGS;
    down.delete_logs = &logs;
    if (agent_session_send(session, &down, &e) != ERR_OK)
        log_warn("delete_logs_dropped", "node=%s job=%lld why=%s", LOG_Q(session->node), (long long)job,
                 LOG_Q(e.msg));
}

static void effect_run_on_session(struct service *s, const struct core_effect *f)
{
    struct agent_session *session = handles_get(&s->sessions, f->session);
    if (!session)
        return;
    switch (f->kind) {
    case EFFECT_WELCOME:
        effect_welcome(s, session);
        return;
    case EFFECT_REFUSE:
        log_warn("session_refused", "node=%s why=%s", LOG_Q(session->node), LOG_Q(f->err.msg));
        rpc_call_fail(session->rpc, &f->err);
        return;
    case EFFECT_CLOSE:
        rpc_call_fail_with(session->rpc, ERR_ABORTED, "a newer session of node %s replaced this one",
                           session->node);
        return;
    case EFFECT_CLEAR_GPU_FAULTS:
        effect_clear_gpu_problems(session);
        return;
    case EFFECT_DELETE_LOGS:
        effect_delete_logs(session, f->job);
        return;
    case EFFECT_ACK:
        effects_ack(session, f->sequence, f->heartbeat_ms);
        return;
    case EFFECT_LOOK:
        snapshot_query_send(session, f->job);
        return;
    default: /* EFFECT_WISH: one message at the end of the turn, however often the wish changed */
        session->wish_due = s->wishes_due = true;
    }
}

static void effect_run(struct service *s, const struct core_effect *f)
{
    switch (f->kind) {
    case EFFECT_REPLY:
        effect_reply(s, f);
        return;
    case EFFECT_JOIN:
        effect_join(s, f);
        return;
    case EFFECT_WATCH:
        effect_watch(s, f);
        return;
    case EFFECT_WELCOME:
    case EFFECT_REFUSE:
    case EFFECT_CLOSE:
    case EFFECT_ACK:
    case EFFECT_CLEAR_GPU_FAULTS:
    case EFFECT_DELETE_LOGS:
    case EFFECT_LOOK:
    case EFFECT_WISH:
        effect_run_on_session(s, f);
        return;
    case EFFECT_JOB_CHANGED: /* streams are only marked here and sent at the end of the turn */
        calls_job_changed(s, f->job);
        logs_job_changed(s, f->job);
        members_job_changed(s);
        return;
    case EFFECT_NODE_CHANGED:
        logs_node_changed(s, f->node);
        relays_node_changed(s, f->node);
        members_changed(s);
        return;
    }
}

void effects_run(struct service *s, const struct core_out *out)
{
    for (size_t i = 0; i < out->effect_count; i++)
        effect_run(s, &out->effects[i]);
}
