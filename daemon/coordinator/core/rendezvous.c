/* The ranks of a train job find each other.
 *
 * The happy path: each rank joins with its address and the snapshots that it could offer (forming). When the
 * last rank has joined, the generation's key and the source of its state are fixed and committed (ready), and
 * rank 0 alone is asked for the bootstrap id. When that is committed, all ranks get the same answer
 * (running), however often they ask. A rank also watches its generation, to learn that it drains or has
 * ended. If ranks join that have outlived the last generation (survivors.c), the source is the one with the newest
 * state in memory, and no snapshot is looked for.
 *
 * Failure modes: a rank that does not join in time ends the generation (fail_late_generation), unless it is a survivor
 * that still computes. A Join that
 * waits too long is answered PENDING, and the rank calls again. Offers are not durable: after a restart of
 * the coordinator, a forming generation waits until all ranks have joined again, which their clients do by
 * themselves. */
#include "daemon/coordinator/core/rendezvous.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/cards/lost_generation.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/jobs.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/placement/broken_group.h"
#include "daemon/coordinator/core/placement/handover.h"
#include "daemon/coordinator/core/placement/quorum.h"
#include "daemon/coordinator/core/placement/survivors.h"
#include "daemon/coordinator/core/snapshots/lost_snapshots.h"
#include "daemon/coordinator/core/snapshots/offered_parts.h"
#include "daemon/coordinator/core/snapshots/pending_parts.h"
#include "daemon/coordinator/core/snapshots/snapshots.h"

#define ADDRESS_LIMIT 4096
#define BOOTSTRAP_LIMIT 4096
#define COMPUTING_LOOK_MS 5000 /* between two looks at survivors that keep their generation from forming */
#define UNUSABLE_KEPT 16
#define UNUSABLE_CHARS 400
#define SAID_CHARS 96

/* Returns the caller if it is a member of its job's current generation; else answers the call and returns
 * NULL. */
static struct spawn *find_member(struct core *core, const struct core_event *event, int64_t generation,
                                 int rank)
{
    struct job *job = core_find_job(core, event->member.job);
    struct spawn *s = job ? job_find_spawn(job, event->member.spawn) : NULL;

    if (s) {
        lost_generation_note(s, generation);
        lost_generation_review(core, job);
    }
    if (!s)
        emit_fail(core, event->call, ERR_NOT_FOUND, "there is no spawn %" PRId64 " of job %" PRId64,
                  event->member.spawn, event->member.job);
    else if (job_may_lack_generation(job, generation))
        emit_not_yet(core, event->call, job, generation);
    /* ABORTED tells the process to give its generation up, which is all that a former member can do */
    else if (!spawn_is_member(s) || s->rank->r.generation != generation)
        emit_fail(core, event->call, ERR_ABORTED,
                  "generation %" PRId64 " of job %" PRId64
                  " has ended or is not yours; the current generation is %" PRId64,
                  generation, job->r.id, job->r.generation);
    else if (job->spec.kind != JOB_TRAIN)
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION,
                  "job %" PRId64 " is a command job: its workers do not join", job->r.id);
    else if (s->rank->r.rank != rank)
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION, "this spawn is rank %d, not %d",
                  s->rank->r.rank, rank);
    else
        return s;
    return NULL;
}

static void answer_join(struct core *core, struct spawn *s, enum core_join_state state)
{
    if (!s->join_call)
        return;
    struct core_effect *effect = emit_effect(core, EFFECT_JOIN);
    effect->call = s->join_call;
    effect->state = state;
    effect->job = s->r.job;
    effect->generation = s->rank->r.generation;
    effect->rank = s->rank->r.rank;
    s->join_call = 0;
}

/* Copies the snapshots that the rank could offer, and its complaints about those that it could not. */
static void keep_offers(struct spawn *s, const struct core_event *event)
{
    spawn_drop_offers(s);
    offered_parts_keep(s, event->join.offers, event->join.offer_count);
    for (size_t i = 0; i < event->join.unusable_count && i < UNUSABLE_KEPT; i++) {
        CLEANUP(free_text) char *line = xasprintf("%.*s", UNUSABLE_CHARS, event->join.unusable[i]);
        s->unusable = strv_append(s->unusable, line);
    }
}

/* Replaces *to. Workers may send a text of any length, so it is cut. */
static void keep_text(char **to, const char *text)
{
    free(*to);
    *to = text && *text ? xasprintf("%.*s", SAID_CHARS, text) : NULL;
}

/* The address, and what the worker says of itself. */
static void keep_address(struct core *core, struct rank *rank, const struct core_event *event)
{
    const uint8_t *address = event->join.address;
    size_t size = event->join.address_size;

    if (rank->r.state != RANK_JOINED || rank->r.address_size != size ||
        (size && memcmp(rank->r.address, address, size) != 0)) {
        free(rank->r.address);
        rank->r.address = size ? xmemdup(address, size) : NULL;
        rank->r.address_size = size;
        keep_text(&rank->r.version, event->join.version);
        keep_text(&rank->r.computes, event->join.computes);
        emit_rank(core, rank, CHANGE_RANK_PUT);
    }
    if (rank->r.state == RANK_ASSIGNED || rank->r.state == RANK_SPAWNED)
        emit_rank_move(core, rank, RANK_JOINED);
}

/* joined_as rather than the rank's state: the state is durable, but the offers are not. */
static bool all_joined(const struct generation *g)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->joined_as != &g->ranks[i] || g->ranks[i].r.state == RANK_LOST)
            return false;
    return true;
}

/* Makes the rank that has the newest state in memory the source; of equal ones the lowest. Returns false if no rank
 * has any. */
static bool choose_live_source(struct generation *g)
{
    int64_t newest = 0;

    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;
        if (s->live_step <= newest)
            continue;
        newest = s->live_step;
        g->r.source_rank = i;
    }
    if (!newest)
        return false;
    g->r.source_generation = g->r.number - 1;
    g->r.source_step = newest;
    /* no digest: this tells it from a snapshot, even after a restart (core_generation_is_live) */
    free(steal(g->r.source_digest));
    free(steal(g->r.source_path));
    return true;
}

/* Finds the state that the generation starts from. Returns false if its snapshots are missing; it has ended then. */
static bool choose_source(struct core *core, struct generation *g)
{
    if (choose_live_source(g)) {
        offered_parts_forget(g);
        return true;
    }
    const struct core_offer *refused = snapshots_choose(core, g);
    if (lost_snapshots_check(core, g, refused))
        return false;
    offered_parts_say(core, g);
    offered_parts_forget(g);
    return true;
}

static void make_ready(struct core *core, struct generation *g)
{
    if (!choose_source(core, g))
        return;
    core->env.random(core->env.ctx, g->r.key, sizeof(g->r.key));
    g->r.has_key = true;
    g->r.ready_ms = core->now.wall_ms;
    emit_generation(core, g, CHANGE_GENERATION_PUT);
    emit_generation_move(core, g, GENERATION_READY, "all ranks have joined");
    /* rank 0 has as much time for the bootstrap id as all had for joining */
    g->join_at = core->now.boot_ms + g->job->spec.join_timeout_ms;
    core_wake(core, g->join_at);
    answer_join(core, g->ranks[0].spawn, CORE_JOIN_BOOTSTRAP);
}

/* Placement may have waited for this word. */
static void keep_stays(struct core *core, struct spawn *s, bool stays)
{
    if (s->stays_unsaid)
        core_capacity_changed(core);
    s->stays_unsaid = false;
    s->stays = stays;
}

void rendezvous_join(struct core *core, const struct core_event *event)
{
    struct spawn *s = find_member(core, event, event->join.generation, event->join.rank);
    struct err e = {0};

    if (!s)
        return;
    if (event->join.address_size > ADDRESS_LIMIT || event->join.offer_count > CORE_OFFERS_MOST) {
        emit_fail(core, event->call, ERR_INVALID_ARGUMENT,
                  "an address may have at most %d bytes, and a join at most %d offers", ADDRESS_LIMIT,
                  CORE_OFFERS_MOST);
        return;
    }
    if (offered_parts_check(s, event->join.offers, event->join.offer_count, &e) != ERR_OK) {
        emit_fail(core, event->call, e.code, "%s", e.msg);
        return;
    }
    struct generation *g = s->rank->generation;
    keep_stays(core, s, event->join.stays);
    answer_join(core, s, CORE_JOIN_PENDING); /* the process has given its earlier call up */
    s->join_call = event->call;
    s->join_at = core->now.boot_ms + core->config.join_wait_ms;
    core_wake(core, s->join_at);
    /* Otherwise the rank has joined before and asks again: it gets the answer that its generation has
     * reached. */
    if (g->r.state == GENERATION_FORMING) {
        s->joined_as = s->rank;
        s->live_step = event->join.live_step;
        keep_offers(s, event);
        keep_address(core, s->rank, event);
        if (all_joined(g))
            make_ready(core, g);
    } else if (g->r.state != GENERATION_READY) {
        answer_join(core, s, CORE_JOIN_READY);
    } else if (s->rank->r.rank == 0) {
        answer_join(core, s, CORE_JOIN_BOOTSTRAP);
    }
}

/* "grew from 2 to 3 nodes at step 120, without a stop, in 0.2 s: box3 joins" */
static void say_handed_over(struct core *core, const struct generation *g)
{
    struct job *job = g->job;
    int from = job->handed.nodes, to = g->r.node_count;
    CLEANUP(buf_release) struct buf text = {0};

    if (job->handed.generation != g->r.number || !core_generation_is_live(&g->r))
        return;
    if (from == to)
        buf_printf(&text, "went on with %s", text_counted(to, "node").text);
    else
        buf_printf(&text, "%s from %d to %s", from < to ? "grew" : "shrank", from,
                   text_counted(to, "node").text);
    emit_event(core, job, "handed_over", "%s at step %s, without a stop, in %s: %s", text.data,
               text_count(g->r.source_step).text,
               text_duration(core->now.boot_ms - job->handed.since_ms).text, job->handed.why);
    job->handed.generation = 0;
}

/* "generation 2: 4 ranks joined in 38 ms; state from snapshot step 3,000: 201 steps to redo";
 * "generation 4: 4 ranks joined in 85 ms; state from the memory of rank 0, step 3,201: no step to redo" */
static void say_joined(struct core *core, struct generation *g)
{
    struct job *job = g->job;
    bool live = core_generation_is_live(&g->r);
    bool scratch = g->r.source_rank < 0 && job->r.scratch_generation;
    int64_t lost =
        job->r.fault_ms && !scratch ? job->r.fault_step - (g->r.source_rank >= 0 ? g->r.source_step : 0) : 0;
    CLEANUP(buf_release) struct buf text = {0};

    buf_printf(&text, "generation %" PRId64 ": %s joined in %s", g->r.number,
               text_counted(g->r.world_size, "rank").text,
               text_duration(core->now.boot_ms - g->born_ms).text);
    if (live)
        buf_printf(&text, "; state from the memory of rank %d, step %s", g->r.source_rank,
                   text_count(g->r.source_step).text);
    else if (g->r.source_rank >= 0)
        buf_printf(&text, "; state from snapshot step %s", text_count(g->r.source_step).text);
    else if (scratch)
        buf_puts(&text, "; from scratch, as the user asked");
    else if (g->r.number > 1 || job->r.continues)
        buf_puts(&text, "; no snapshot to start from");
    if (lost > 0)
        buf_printf(&text, ": %s to redo", text_counted(lost, "step").text);
    else if (live)
        buf_puts(&text, ": no step to redo");
    emit_event(core, job, "generation_joined", "%s", text.data);
    say_handed_over(core, g);
    /* a new run: no steps are done again, and old losses cannot be compared with new ones */
    if (scratch) {
        job->r.fault_step = 0;
        job->progress = (struct core_progress){.steps = job->progress.steps};
    }
    if (job->progress.step > 0 && (!live || g->r.source_step > job->progress.step))
        job->progress.step = g->r.source_rank >= 0 ? g->r.source_step : 0;
}

void rendezvous_bootstrap(struct core *core, const struct core_event *event)
{
    const uint8_t *bytes = event->bootstrap.bytes;
    size_t size = event->bootstrap.size;
    struct spawn *s = find_member(core, event, event->bootstrap.generation, event->bootstrap.rank);

    if (!s)
        return;
    struct generation *g = s->rank->generation;
    if (s->rank->r.rank != 0 || g->r.state == GENERATION_FORMING) {
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION,
                  s->rank->r.rank ? "only rank 0 may send the bootstrap id" : "not all ranks have joined");
        return;
    }
    if (size < 1 || size > BOOTSTRAP_LIMIT) {
        emit_fail(core, event->call, ERR_INVALID_ARGUMENT,
                  "expected a bootstrap id of 1 to %d bytes, got %zu", BOOTSTRAP_LIMIT, size);
        return;
    }
    /* Rank 0 may repeat its call, because the reply was lost. The same bytes are fine. Others would split the
     * group: some ranks have the first id already. */
    if (g->r.state != GENERATION_READY) {
        if (g->r.bootstrap_size == size && !memcmp(g->r.bootstrap, bytes, size))
            emit_ok(core, event->call);
        else
            emit_fail(core, event->call, ERR_FAILED_PRECONDITION,
                      "generation %" PRId64 " already has another bootstrap id", g->r.number);
        return;
    }
    g->r.bootstrap = xmemdup(bytes, size);
    g->r.bootstrap_size = size;
    g->join_at = 0;
    emit_generation(core, g, CHANGE_GENERATION_PUT);
    say_joined(core, g);
    jobs_started(core, g->job);
    emit_ok(core, event->call);
    for (int i = 0; i < g->r.world_size; i++)
        answer_join(core, g->ranks[i].spawn, CORE_JOIN_READY);
}

/* Lets the generation wait on, for survivors that compute: "generation 2 waits longer than 60 s for rank 3 on box1,
 * which still computes". With stall_timeout, stall.c replaces a survivor that computes without a line for that long.
 * Without stall_timeout, the wait has no limit. */
static void await_computing_survivors(struct core *core, struct generation *g)
{
    const struct job *job = g->job;
    const struct rank *first = NULL;

    for (int i = 0; i < g->r.world_size && !first; i++)
        if (g->ranks[i].spawn->joined_as != &g->ranks[i])
            first = &g->ranks[i];
    if (!g->waits_longer && first)
        emit_event(core, g->job, "generation_waits",
                   "generation %" PRId64 " waits longer than %" PRId64
                   " s for rank %d on %s, which still computes",
                   g->r.number, job->spec.join_timeout_ms / 1000, first->r.rank, first->r.node);
    g->waits_longer = true;
    g->join_at = core->now.boot_ms + COMPUTING_LOOK_MS;
    core_wake(core, g->join_at);
}

/* Ends a generation that did not form in time: "ranks 2, 3 on box2, box3 did not join within 60 s". */
static void fail_late_generation(struct core *core, struct generation *g)
{
    CLEANUP(buf_release) struct buf who = {0}, where = {0}, text = {0};
    bool command = g->job->spec.kind == JOB_COMMAND;
    const char *node = NULL;
    int missing = 0;

    for (int i = 0; i < g->r.world_size; i++) {
        const struct rank *rank = &g->ranks[i];
        if (command ? rank->r.state != RANK_ASSIGNED : rank->spawn->joined_as == rank)
            continue;
        buf_printf(&who, "%s%d", missing++ ? ", " : "", i);
        if (!node || strcmp(node, rank->r.node) != 0)
            buf_printf(&where, "%s%s", node ? ", " : "", rank->r.node);
        node = rank->r.node;
    }
    if (missing)
        buf_printf(&text, "rank%s %.200s on %.200s did not %s", text_plural(missing), who.data, where.data,
                   command ? "start" : "join");
    else
        buf_printf(&text, "rank 0 on %s did not send the bootstrap id", g->ranks[0].r.node);
    buf_printf(&text, " within %" PRId64 " s", g->job->spec.join_timeout_ms / 1000);
    generation_fail(
        core, g, &(struct failure_cause){.charged = true, .late = true, .exit_code = 125, .text = text.data});
}

void rendezvous_tick(struct core *core, struct generation *g)
{
    if (!generation_open(g))
        return;
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->join_call && core->now.boot_ms >= g->ranks[i].spawn->join_at)
            answer_join(core, g->ranks[i].spawn, CORE_JOIN_PENDING);
    if (!g->join_at || core->now.boot_ms < g->join_at)
        return;
    if (survivors_still_compute(g))
        await_computing_survivors(core, g);
    else
        fail_late_generation(core, g);
}

int64_t rendezvous_deadline(const struct generation *g)
{
    int64_t at = g->join_at ? g->join_at : INT64_MAX;

    if (!generation_open(g))
        return INT64_MAX;
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->join_call && g->ranks[i].spawn->join_at < at)
            at = g->ranks[i].spawn->join_at;
    return at;
}

/* Whether rank 0 should take the job file over. If it uses a later revision than ours, our records are older than the
 * job, and its node may have a card with that revision: ours counts only when the node's hello has brought none. */
static bool watcher_needs_file(const struct watcher *w)
{
    const struct spawn *s = w->spawn;

    if (w->revision > s->job->r.revision)
        return !s->node || s->node->said_hello;
    return w->revision < s->job->r.revision;
}

/* Tells a watcher whether it is a member or is to wait for the next generation, whether it should finish its step and stop, and
 * of a new job file. This is a level, not an edge, so a watcher that missed an answer loses nothing. Returns false if it is
 * neither a member nor to wait. */
static bool tell_watcher(struct core *core, const struct watcher *w)
{
    const struct spawn *s = w->spawn;
    struct core_effect *effect = emit_effect(core, EFFECT_WATCH);

    effect->call = w->call;
    effect->job = s->r.job;
    effect->member = spawn_is_member(s);
    effect->wait = effect->member ? broken_group_waits(s) : s->stays && spawn_is_between(s);
    effect->late = effect->wait && spawn_is_late(s);
    effect->hold = effect->member ? quorum_hold_from(s->job) : 0;
    effect->generation = s->job->r.generation;
    effect->rank = effect->member ? s->rank->r.rank : -1;
    effect->stop = s->rank->generation->r.state == GENERATION_DRAINING;
    effect->handover = effect->member ? s->job->handover.number : 0;
    effect->tune = effect->rank == 0 && watcher_needs_file(w);
    return effect->member || effect->wait;
}

/* Tells every watcher of the generation, and drops those that have nothing more to hear. */
static void tell_watchers(struct core *core, const struct generation *g)
{
    size_t kept = 0;

    for (size_t i = 0; i < core->watcher_count; i++)
        if (core->watchers[i].spawn->rank->generation != g || tell_watcher(core, &core->watchers[i]))
            core->watchers[kept++] = core->watchers[i];
    core->watcher_count = kept;
}

void rendezvous_node_known(struct core *core, const struct node *node)
{
    for (size_t i = 0; i < core->watcher_count; i++) {
        const struct watcher *w = &core->watchers[i];
        if (w->spawn->node == node && spawn_is_member(w->spawn) && w->revision > w->spawn->job->r.revision)
            (void)tell_watcher(core, w);
    }
}

/* Rank 0 says which revision of the job file is in use. */
static void keep_revision(struct core *core, const struct spawn *s, const struct core_event *event)
{
    const struct generation *g = s->rank->generation;
    struct job *job = s->job;
    int64_t step = event->watch.step;

    if (!event->watch.record || !spawn_is_member(s) || s->rank->r.rank != 0 ||
        event->watch.revision != job->r.revision || job->r.revision_used == job->r.revision)
        return;
    if (!step && g->r.source_rank >= 0)
        step = g->r.source_step;
    job->r.revision_used = job->r.revision;
    job->changed = true;
    emit_job(core, job, CHANGE_JOB_PUT);
    emit_event(core, job, "tune_applied", "tuned values are in use from step %s on",
               text_count(step + 1).text);
}

/* It waits between two steps, or goes on. Placement follows when the last member waits. */
static void keep_readiness(struct core *core, struct spawn *s, int64_t ready, int64_t gathered)
{
    s->ready = ready;
    handover_note_gathered(core, s, gathered);
    if (ready && ready == s->job->handover.number)
        core_capacity_changed(core);
}

/* A worker has one Watch at a time. It has closed its last one, but its connection may have been lost before, so that this is not known
 * yet. */
static void watcher_drop_last(struct core *core, const struct spawn *s)
{
    for (size_t i = core->watcher_count; i-- > 0;)
        if (core->watchers[i].spawn == s) {
            emit_fail(core, core->watchers[i].call, ERR_UNAVAILABLE, "a later call replaces this one");
            core->watchers[i] = core->watchers[--core->watcher_count];
        }
}

void rendezvous_watch(struct core *core, const struct core_event *event)
{
    struct job *job = core_find_job(core, event->member.job);
    struct watcher w = {event->call, job ? job_find_spawn(job, event->member.spawn) : NULL,
                        event->watch.revision};

    if (!w.spawn) {
        emit_fail(core, event->call, ERR_NOT_FOUND, "there is no spawn %" PRId64 " of job %" PRId64,
                  event->member.spawn, event->member.job);
        return;
    }
    lost_generation_note(w.spawn, event->watch.generation);
    if (job_may_lack_generation(job, event->watch.generation)) {
        emit_not_yet(core, event->call, job, event->watch.generation);
        return;
    }
    keep_stays(core, w.spawn, event->watch.stays);
    if (event->watch.record)
        lost_generation_review(core, job);
    /* A survivor may not know its new generation yet: what it says of the last one does not concern this one. */
    bool current = w.spawn->rank->generation->r.number == event->watch.generation;
    if (current)
        keep_revision(core, w.spawn, event);
    keep_readiness(core, w.spawn, current ? event->watch.ready : 0, current ? event->watch.gathered : 0);
    quorum_arrived(core, w.spawn, current ? event->watch.arrived : 0, current && event->watch.holds);
    if (!w.spawn->stays && spawn_is_between(w.spawn)) /* it counted as a survivor before it could say this */
        generation_lose_survivor(core, w.spawn, "this worker cannot continue in the next generation");
    if (event->watch.record) /* else nothing can be decided now */
        w.spawn->broken_generation = current && event->watch.broken ? event->watch.generation : 0;
    if (!tell_watcher(core, &w))
        return; /* a former member has its answer, and nothing will change for it */
    if (event->watch.failed_step && current)
        pending_parts_failed(job, w.spawn, event->watch.failed_step);
    watcher_drop_last(core, w.spawn);
    core->watchers = array_grow(core->watchers, core->watcher_count, &core->watcher_cap, sizeof(w));
    core->watchers[core->watcher_count++] = w;
    if (event->watch.record)
        broken_group_review(core, job);
}

void rendezvous_gone(struct core *core, const struct core_event *event)
{
    struct job *job = core_find_job(core, event->member.job);
    struct spawn *s = job ? job_find_spawn(job, event->member.spawn) : NULL;
    size_t left = 0;

    for (size_t i = 0; i < core->watcher_count; i++)
        if (core->watchers[i].call != event->call)
            core->watchers[left++] = core->watchers[i];
    core->watcher_count = left;
    if (s && s->join_call == event->call) /* else a later Join has replaced it, or it was no Join */
        s->join_call = 0;
}

void rendezvous_left(struct core *core, struct spawn *s, const char *why)
{
    if (!s->join_call)
        return;
    emit_fail(core, s->join_call, ERR_ABORTED, "generation %" PRId64 " is closed: %s", s->rank->r.generation,
              why);
    s->join_call = 0;
}

void rendezvous_closed(struct core *core, struct generation *g, const char *why)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (rank_is_held(&g->ranks[i])) /* else the call is about a newer generation */
            rendezvous_left(core, g->ranks[i].spawn, why);
    if (!generation_open(g))
        offered_parts_forget(g);
    tell_watchers(core, g);
}

void rendezvous_formed(struct core *core, const struct generation *g)
{
    tell_watchers(core, g);
}

/* A rank that reconnects may have two streams for a moment, so there may be more streams than ranks. */
int rendezvous_watching(const struct core *core, const struct generation *g)
{
    int count = 0;

    for (size_t i = 0; i < core->watcher_count; i++)
        count += core->watchers[i].spawn->rank->generation == g;
    return count < g->r.world_size ? count : g->r.world_size;
}

void rendezvous_stopping(struct core *core, struct generation *g)
{
    tell_watchers(core, g);
}

void rendezvous_tuned(struct core *core, struct generation *g)
{
    tell_watchers(core, g);
}

void rendezvous_handover(struct core *core, struct generation *g)
{
    tell_watchers(core, g);
}

void rendezvous_renew(struct core *core, const struct job *job)
{
    for (size_t i = 0; i < job->spawn_count; i++) {
        struct spawn *s = job->spawns[i];
        if (s->join_call)
            emit_fail(core, s->join_call, ERR_UNAVAILABLE, "job %" PRId64 " is being reloaded; call again",
                      job->r.id);
        s->join_call = 0;
    }
    for (size_t i = 0; i < core->watcher_count; i++)
        if (core->watchers[i].spawn->job == job)
            emit_fail(core, core->watchers[i].call, ERR_UNAVAILABLE,
                      "job %" PRId64 " is being reloaded; call again", job->r.id);
}
