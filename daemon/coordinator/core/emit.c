#include "daemon/coordinator/core/emit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "daemon/coordinator/core/internal_event.h"
#include "daemon/coordinator/core/model.h"

/* Placement depends on these records. Its other inputs are only in memory; code that changes them calls
 * core_capacity_changed. Changes that placement makes itself do not cause a second pass, because
 * placement_run clears the mark. */
static bool change_affects_placement(enum change_kind kind)
{
    switch (kind) {
    case CHANGE_JOB_INSERT:
    case CHANGE_JOB_MOVE:
    case CHANGE_NODE_INSERT:
    case CHANGE_NODE_PUT:
    case CHANGE_NODE_MOVE:
    case CHANGE_NODE_DELETE:
    case CHANGE_GENERATION_MOVE:
        return true;
    default:
        return false;
    }
}

static struct change *change_add(struct core *core, enum change_kind kind)
{
    struct core_out *out = core->out;

    out->changes = array_grow(out->changes, out->change_count, &out->change_cap, sizeof(struct change));
    struct change *c = &out->changes[out->change_count++];
    *c = (struct change){.kind = kind};
    if (change_affects_placement(kind))
        core_capacity_changed(core);
    return c;
}

void emit_job(struct core *core, const struct job *job, enum change_kind kind)
{
    struct job_record *copy = xmalloc(sizeof(*copy));

    job_record_copy(copy, &job->r);
    change_add(core, kind)->job = copy;
}

void emit_node(struct core *core, const struct node *node, enum change_kind kind)
{
    if (kind == CHANGE_NODE_DELETE) {
        change_add(core, kind)->name = xstrdup(node->r.name);
        return;
    }
    struct node_record *copy = xmalloc(sizeof(*copy));
    node_record_copy(copy, &node->r);
    change_add(core, kind)->node = copy;
}

void emit_generation(struct core *core, const struct generation *g, enum change_kind kind)
{
    struct generation_record *copy = xmalloc(sizeof(*copy));

    generation_record_copy(copy, &g->r);
    change_add(core, kind)->generation = copy;
}

void emit_generation_removed(struct core *core, const struct generation *g)
{
    struct change *c = change_add(core, CHANGE_GENERATION_DELETE);

    c->id = g->job->r.id;
    c->generation_number = g->r.number;
}

void emit_rank(struct core *core, const struct rank *rank, enum change_kind kind)
{
    struct rank_record *copy = xmalloc(sizeof(*copy));

    rank_record_copy(copy, &rank->r);
    change_add(core, kind)->rank = copy;
}

void emit_spawn(struct core *core, const struct spawn *s, enum change_kind kind)
{
    struct spawn_record *copy = xmalloc(sizeof(*copy));

    spawn_record_copy(copy, &s->r);
    change_add(core, kind)->spawn = copy;
}

void emit_snapshot(struct core *core, const struct snapshot_record *snapshot, enum change_kind kind)
{
    struct snapshot_record *copy = xmalloc(sizeof(*copy));

    snapshot_record_copy(copy, snapshot);
    change_add(core, kind)->snapshot = copy;
}

void emit_progress(struct core *core, const struct job *job)
{
    struct change *c = change_add(core, CHANGE_JOB_PROGRESS);

    c->id = job->r.id;
    c->text = xstrdup(job->r.progress);
}

void emit_forget(struct core *core, int64_t job)
{
    change_add(core, CHANGE_JOB_FORGET)->id = job;
}

void emit_number_removed(struct core *core, int64_t job)
{
    change_add(core, CHANGE_LOST_NUMBER_REMOVED)->id = job;
}

void emit_clear(struct core *core, int64_t job)
{
    change_add(core, CHANGE_JOB_CLEAR)->id = job;
}

void emit_meta(struct core *core, const char *key, int64_t value)
{
    struct change *c = change_add(core, CHANGE_META);

    c->name = xstrdup(key);
    c->id = value;
}

const char *event_who(const struct core_event *event)
{
    return event->who && *event->who ? event->who : "the user";
}

void emit_event(struct core *core, const struct job *job, const char *what, const char *fmt, ...)
{
    struct event_record *event = xcalloc(1, sizeof(*event));
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    event->time_ms = core->now.wall_ms;
    event->job = job ? job->r.id : 0;
    event->generation = job ? job->r.generation : 0;
    event->what = xstrdup(what);
    event->text = xstrdup(text);
    change_add(core, CHANGE_EVENT)->event = event;
}

void emit_notice(struct core *core, const struct notice_record *notice)
{
    struct notice_record *copy = xmalloc(sizeof(*copy));

    *copy = *notice;
    copy->hook = xstrdup(notice->hook);
    copy->what = xstrdup(notice->what);
    copy->text = xstrdup(notice->text);
    copy->name = xstrdup(notice->name);
    copy->user = xstrdup(notice->user);
    copy->node = xstrdup(notice->node);
    copy->url = xstrdup(notice->url);
    change_add(core, CHANGE_NOTICE)->notice = copy;
}

/* Adds the change of a state. The state's table must allow the move: any other move is a bug. */
static struct change *change_add_move(struct core *core, enum change_kind kind, const struct sm *sm, int from,
                                      int to, const char *why)
{
    sm_check(sm, from, to);
    struct change *c = change_add(core, kind);
    c->from = from;
    c->to = to;
    c->text = xstrdup(why);
    return c;
}

void emit_job_move(struct core *core, struct job *job, enum job_state to, const char *why)
{
    if (!core->rehearses)
        log_info("job_moved", "job=%" PRId64 " gen=%" PRId64 " from=%s to=%s why=%s", job->r.id,
                 job->r.generation, sm_name(&job_sm, job->r.state), sm_name(&job_sm, to), LOG_Q(why));
    change_add_move(core, CHANGE_JOB_MOVE, &job_sm, job->r.state, to, why)->id = job->r.id;
    job->r.state = to;
    text_set(&job->r.reason, "%s", why);
    job->changed = true;
    if (to != JOB_QUEUED && to != JOB_RECOVERING) {
        free(steal(job->waits));
        strv_free(steal(job->targets));
    }
    if (to != JOB_RUNNING) {
        strv_free(steal(job->grow.nodes));
        job->grow.at = 0;
    }
    if (job_finished(job))
        raise_job_ended(core, job);
}

void emit_node_move(struct core *core, struct node *node, enum node_state to, const char *why)
{
    log_info("node_moved", "node=%s from=%s to=%s why=%s", node->r.name, sm_name(&node_sm, node->r.state),
             sm_name(&node_sm, to), LOG_Q(why));
    change_add_move(core, CHANGE_NODE_MOVE, &node_sm, node->r.state, to, why)->name = xstrdup(node->r.name);
    node->r.state = to;
    node->r.seen_ms = core->now.wall_ms;
    emit_node(core, node, CHANGE_NODE_PUT);
    emit_event(core, NULL, "node_moved", "node %s is %s: %s", node->r.name, sm_name(&node_sm, (int)to), why);
    emit_effect(core, EFFECT_NODE_CHANGED)->node = xstrdup(node->r.name);
    raise_node_moved(core, node);
}

void emit_generation_move(struct core *core, struct generation *g, enum generation_state to, const char *why)
{
    log_info("generation_moved", "job=%" PRId64 " gen=%" PRId64 " from=%s to=%s why=%s", g->r.job,
             g->r.number, sm_name(&generation_sm, g->r.state), sm_name(&generation_sm, to), LOG_Q(why));
    struct change *c = change_add_move(core, CHANGE_GENERATION_MOVE, &generation_sm, g->r.state, to, why);
    c->id = g->r.job;
    c->generation_number = g->r.number;
    g->r.state = to;
    text_set(&g->r.reason, "%s", why);
    g->job->changed = true;
    for (int i = 0; to != GENERATION_READY && i < g->r.world_size; i++) /* cards show the state */
        if (g->ranks[i].spawn && !g->ranks[i].spawn->r.dead && g->ranks[i].spawn->node)
            g->ranks[i].spawn->node->wish_dirty = true;
}

void emit_rank_move(struct core *core, struct rank *rank, enum rank_state to)
{
    log_debug("rank_moved", "job=%" PRId64 " gen=%" PRId64 " rank=%d from=%s to=%s", rank->r.job,
              rank->r.generation, rank->r.rank, sm_name(&rank_sm, rank->r.state), sm_name(&rank_sm, to));
    struct change *c = change_add_move(core, CHANGE_RANK_MOVE, &rank_sm, rank->r.state, to, NULL);
    c->id = rank->r.job;
    c->generation_number = rank->r.generation;
    c->rank_number = rank->r.rank;
    rank->r.state = to;
    rank->spawn->job->changed = true;
}

struct core_effect *emit_effect(struct core *core, enum core_effect_kind kind)
{
    struct core_out *out = core->out;

    out->effects = array_grow(out->effects, out->effect_count, &out->effect_cap, sizeof(struct core_effect));
    struct core_effect *effect = &out->effects[out->effect_count++];
    *effect = (struct core_effect){.kind = kind};
    return effect;
}

void emit_ok(struct core *core, uint64_t call)
{
    emit_effect(core, EFFECT_REPLY)->call = call;
}

void emit_fail(struct core *core, uint64_t call, enum err_code code, const char *fmt, ...)
{
    struct core_effect *effect = emit_effect(core, EFFECT_REPLY);
    char text[480];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    effect->call = call;
    err_set(&effect->err, code, "%s", text);
}

void emit_not_yet(struct core *core, uint64_t call, const struct job *job, int64_t generation)
{
    emit_fail(core, call, ERR_UNAVAILABLE,
              "the restored records may lack generation %" PRId64 " of job %" PRId64
              " until its nodes have connected; call again",
              generation, job->r.id);
}

void emit_job_reply(struct core *core, uint64_t call, const struct job *job, bool existed)
{
    struct core_effect *effect = emit_effect(core, EFFECT_REPLY);

    effect->call = call;
    effect->job = job->r.id;
    effect->existed = existed;
}

void emit_submit_reply(struct core *core, uint64_t call, const struct job *job, char **warnings)
{
    struct core_effect *effect = emit_effect(core, EFFECT_REPLY);

    effect->call = call;
    effect->job = job->r.id;
    effect->texts = warnings;
}

void emit_wish(struct core *core, const struct node *node)
{
    struct core_effect *effect = emit_effect(core, EFFECT_WISH);

    effect->session = node->session;
    effect->node = xstrdup(node->r.name);
}

void core_out_clear(struct core_out *out)
{
    for (size_t i = 0; i < out->change_count; i++)
        change_release(&out->changes[i]);
    for (size_t i = 0; i < out->effect_count; i++) {
        free(out->effects[i].node);
        strv_free(out->effects[i].texts);
    }
    out->change_count = out->effect_count = 0;
}

void core_out_release(struct core_out *out)
{
    core_out_clear(out);
    free(out->changes);
    free(out->effects);
    *out = (struct core_out){0};
}
