/* The entrance of the core: hands each event to its handler, then does what follows from it: internal events,
 * placement, new wishes, notices.
 *
 * The happy path of a job: SUBMIT (jobs.c) queues it. Placement (placement.c, generation_form.c) makes
 * generation 1 with its ranks and spawns. The wishes of the nodes (wish.c) carry the spawns out, and FACTS
 * (facts.c) say that they run. Native workers JOIN, and rank 0 puts the bootstrap id (rendezvous.c). REPORTS
 * move the step. FACTS say that all ranks exited with 0, and the job has succeeded. Failure modes: a rank
 * fails (exit_cause.c), a node goes silent (nodes.c), a join takes too long (rendezvous.c). generation_end.c
 * ends the generation, placement forms the next, and nodes.c decides whose processes are known dead.
 *
 * Calls between modules go one way: a module that must tell one above it raises an internal event
 * (internal_event.h), which is dispatched here. */
#include "daemon/coordinator/core/core.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/cards/adopt.h"
#include "daemon/coordinator/core/cards/card.h"
#include "daemon/coordinator/core/clock_doubt.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/facts.h"
#include "daemon/coordinator/core/failure/stall.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/internal_event.h"
#include "daemon/coordinator/core/job_orders.h"
#include "daemon/coordinator/core/jobs.h"
#include "daemon/coordinator/core/load.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/nodes/idle.h"
#include "daemon/coordinator/core/nodes/node_sessions.h"
#include "daemon/coordinator/core/nodes/nodes.h"
#include "daemon/coordinator/core/nodes/operator.h"
#include "daemon/coordinator/core/placement/elastic.h"
#include "daemon/coordinator/core/placement/handover.h"
#include "daemon/coordinator/core/placement/left_out.h"
#include "daemon/coordinator/core/placement/placement.h"
#include "daemon/coordinator/core/placement/quorum.h"
#include "daemon/coordinator/core/progress.h"
#include "daemon/coordinator/core/rendezvous.h"
#include "daemon/coordinator/core/reports.h"
#include "daemon/coordinator/core/snapshots/lost_snapshots.h"
#include "daemon/coordinator/core/snapshots/snapshot_faults.h"
#include "daemon/coordinator/core/snapshots/snapshots.h"
#include "daemon/coordinator/core/wish.h"
#include "daemon/coordinator/core/worker_asks.h"

void core_config_defaults(struct core_config *config)
{
    *config = (struct core_config){
        .epoch = 1,
        .heartbeat_ms = 3000,
        .node_timeout_ms = 9000,
        .idle_beats = 36000,
        .return_ms = 30000,
        .join_wait_ms = 20000,
        .lease_margin_ms = 2000,
        .settle_ms = 5000,
        .look_ms = 30000,
        .retain_jobs_ms = 14LL * 24 * 3600 * 1000,
        .retain_jobs = 1000,
        .keep_generations = 256,
        .max_queued = 10000,
    };
}

struct core *core_create(const struct core_config *config, const struct core_env *env)
{
    struct core *core = xcalloc(1, sizeof(*core));

    core->config = *config;
    core->env = *env;
    core->next_job = 1;
    core->wake_at = INT64_MAX;
    return core;
}

/* Each kind of event has one handler. Handlers of an agent's events get the node. They are called only if the
 * session is the node's newest. */
static const struct handler {
    void (*apply)(struct core *core, const struct core_event *event);
    void (*from_node)(struct core *core, struct node *node, const struct core_event *event);
    bool proves_alive; /* counts as a sign of life of the node */
} handlers[CORE_EVENT_KINDS] = {
    [CORE_SUBMIT] = {.apply = jobs_submit},
    [CORE_CANCEL] = {.apply = jobs_cancel},
    [CORE_RESIZE] = {.apply = elastic_resize},
    [CORE_RESTART] = {.apply = elastic_restart},
    [CORE_TUNE] = {.apply = jobs_tune},
    [CORE_PRIORITY] = {.apply = job_orders_priority},
    [CORE_HOLD] = {.apply = job_orders_hold},
    [CORE_DELETE] = {.apply = job_orders_delete},
    [CORE_DRAIN] = {.apply = operator_drain},
    [CORE_UNDRAIN] = {.apply = operator_undrain},
    [CORE_FORGET] = {.apply = operator_forget},
    [CORE_HELLO] = {.apply = nodes_hello},
    [CORE_HEARTBEAT] = {.from_node = nodes_heartbeat, .proves_alive = true},
    [CORE_FACTS] = {.from_node = facts_apply, .proves_alive = true},
    [CORE_REPORTS] = {.from_node = reports_apply, .proves_alive = true},
    [CORE_ACTIVITY] = {.from_node = stall_apply, .proves_alive = true},
    [CORE_USAGE] = {.from_node = idle_apply, .proves_alive = true},
    [CORE_LOOKED] = {.from_node = lost_snapshots_looked},
    [CORE_GOODBYE] = {.from_node = nodes_goodbye},
    [CORE_SESSION_CLOSED] = {.from_node = nodes_session_closed},
    [CORE_DEAF] = {.apply = nodes_deaf},
    [CORE_JOIN] = {.apply = rendezvous_join},
    [CORE_PUT_BOOTSTRAP] = {.apply = rendezvous_bootstrap},
    [CORE_WATCH] = {.apply = rendezvous_watch},
    [CORE_COMMIT_SNAPSHOT] = {.apply = snapshots_commit},
    [CORE_SNAPSHOT_FAILED] = {.apply = snapshot_faults_failed},
    [CORE_CALL_GONE] = {.apply = rendezvous_gone},
};

static void handle_event(struct core *core, const struct core_event *event)
{
    const struct handler *handler = &handlers[event->kind];

    if (handler->apply) {
        handler->apply(core, event);
        return;
    }
    struct node *node = node_sessions_find(core, event->session);
    if (!node)
        return; /* the agent has a newer session */
    if (handler->proves_alive)
        nodes_heard(core, node);
    handler->from_node(core, node, event);
}

static void follow_event(struct core *core, const struct internal_event *event)
{
    struct job *job = core_find_job(core, event->job);
    struct generation *g = job ? job_find_generation(job, event->generation) : NULL;
    struct spawn *s = job ? job_find_spawn(job, event->spawn) : NULL;
    struct node *node = event->node ? core_find_node(core, event->node) : NULL;

    /* An object that is not found was removed since the event was raised: there is nothing to follow. */
    switch (event->kind) {
    case INTERNAL_SPAWN_DEAD:
        if (s)
            rendezvous_left(core, s, "its process has exited");
        if (s)
            worker_asks_settle(core, s->rank->generation);
        if (job)
            job_settle(core, job);
        break;
    case INTERNAL_GENERATION_ENDED:
        if (g)
            rendezvous_closed(core, g, event->why);
        break;
    case INTERNAL_GENERATION_DRAINING:
        if (g)
            rendezvous_stopping(core, g);
        break;
    case INTERNAL_GENERATION_FORMED:
        if (g)
            rendezvous_formed(core, g);
        break;
    case INTERNAL_SNAPSHOT_COMMITTED:
        if (s)
            snapshot_faults_committed(core, s, event->step);
        break;
    case INTERNAL_JOB_ENDED:
        if (job)
            card_changed(core, job);
        break;
    case INTERNAL_JOB_TUNED:
        if (job && job_current(job))
            rendezvous_tuned(core, job_current(job));
        break;
    case INTERNAL_HANDOVER_ASKED:
        if (job && job_current(job))
            rendezvous_handover(core, job_current(job));
        break;
    case INTERNAL_NODE_MOVED:
        if (node)
            core_wake(core, nodes_deadline(core, node));
        break;
    }
}

/* Following an event may raise others: a dead spawn may end its generation, and that its job. */
static void follow_events(struct core *core)
{
    struct internal_event event;

    while (internal_event_take(core, &event)) {
        follow_event(core, &event);
        internal_event_release(&event);
    }
}

static void tell_job_changes(struct core *core)
{
    for (size_t i = 0; i < core->job_count; i++) {
        struct job *job = core->jobs[i];
        if (job->changed)
            emit_effect(core, EFFECT_JOB_CHANGED)->job = job->r.id;
        job->changed = false;
    }
}

static void finish_call(struct core *core)
{
    follow_events(core);
    for (size_t i = 0; i < core->job_count && core->placement_due; i++)
        left_out_tick(core, core->jobs[i]); /* a job that starts again now tries nodes whose time is over */
    while (core->placement_due) {           /* a job that stops to grow asks for a second pass */
        placement_run(core);
        follow_events(core);
    }
    wish_flush(core);
    tell_job_changes(core);
    core->out = NULL;
}

void core_event(struct core *core, const struct core_event *event, struct core_now now, struct core_out *out)
{
    size_t before = out->change_count;

    core->now = now;
    core->out = out;
    handle_event(core, event);
    /* Heartbeats and usage are by far the most frequent events, and most of them change nothing. The walk over
     * all nodes and jobs is saved for them. */
    if ((event->kind == CORE_HEARTBEAT || event->kind == CORE_USAGE || event->kind == CORE_DEAF) &&
        out->change_count == before && !core->placement_due && !core->internal_count)
        core->out = NULL;
    else
        finish_call(core);
}

static void tick_job(struct core *core, struct job *job)
{
    jobs_tick(core, job);
    if (job_finished(job))
        return;
    stall_tick(core, job);
    idle_tick(core, job);
    if (job_finished(job))
        return;
    handover_tick(core, job);
    quorum_tick(core, job);
    lost_snapshots_tick(core, job);
    left_out_tick(core, job);
    if (job_current(job))
        rendezvous_tick(core, job_current(job));
}

static void wake_for_job(struct core *core, const struct job *job)
{
    core_wake(core, jobs_deadline(job));
    if (job_finished(job))
        return; /* only its last workers have a deadline */
    core_wake(core, stall_deadline(core, job));
    core_wake(core, idle_deadline(core, job));
    core_wake(core, handover_deadline(job));
    core_wake(core, quorum_deadline(job));
    core_wake(core, lost_snapshots_deadline(job));
    core_wake(core, left_out_deadline(job));
    if (job_current(job))
        core_wake(core, rendezvous_deadline(job_current(job)));
}

static void set_next_wake(struct core *core)
{
    core->wake_at = core->retain_at;
    if (core->progress_at)
        core_wake(core, core->progress_at);
    core_wake(core, core->learning_until);
    for (size_t i = 0; i < core->node_count; i++)
        core_wake(core, nodes_deadline(core, core->nodes[i]));
    for (size_t i = 0; i < core->job_count; i++)
        if (core->jobs[i]->spawn_count || !job_finished(core->jobs[i]))
            wake_for_job(core, core->jobs[i]);
}

void core_tick(struct core *core, struct core_now now, struct core_out *out)
{
    core->now = now;
    core->out = out;
    if (core->wake_at != INT64_MAX && now.boot_ms > core->wake_at + core->config.node_timeout_ms / 2)
        core_await_nodes(core); /* this process stood still, and messages of the nodes may wait unread */
    for (size_t i = 0; i < core->node_count; i++)
        nodes_tick(core, core->nodes[i]);
    follow_events(core); /* so that a job's own deadlines find it settled */
    for (size_t i = 0; i < core->job_count; i++)
        tick_job(core, core->jobs[i]);
    follow_events(core);
    if (now.boot_ms >= core->retain_at)
        jobs_retain(core);
    if (core->progress_at && now.boot_ms >= core->progress_at)
        progress_tick(core);
    adopt_tick(core);
    finish_call(core);
    set_next_wake(core);
}

enum err_code core_load(struct core *core, const struct records *records, struct core_now now,
                        struct core_out *out, struct err *e)
{
    core->now = now;
    core->out = out;
    enum err_code code = load_records(core, records, e);
    if (code == ERR_OK && records->age == RECORDS_LEARNING)
        adopt_go_on(core);
    else if (code == ERR_OK && records->age != RECORDS_NEW)
        adopt_begin(core, 0, records->age == RECORDS_NUMBERED);
    core->out = NULL;
    if (code != ERR_OK)
        return e->code;
    core_tick(core, now, out);
    return ERR_OK;
}

void core_save(struct core *core, struct core_now now, struct core_out *out)
{
    core->now = now;
    core->out = out;
    progress_tick(core);
    core->out = NULL;
}

bool core_holds_ages(const struct core *core, struct core_now now)
{
    return clock_doubt_holds(core, now);
}

int64_t core_next_deadline(const struct core *core)
{
    return core->wake_at;
}

const struct spawn_record *core_find_token(const struct core *core, const void *token, size_t size)
{
    uint8_t hash[DIGEST_BYTES];

    if (size != sizeof(((struct spawn_record *)0)->token))
        return NULL;
    digest_sha256(hash, token, size);
    const struct spawn *s = token_table_find(&core->tokens, hash);
    return s ? &s->r : NULL;
}
