/* The rules that a single change must keep, checked by durable.c while it applies the change. invariants.c checks the
 * records that result. A broken rule fails the run. */
#include <inttypes.h>
#include <string.h>

#include "base/worker/exits.h"
#include "tests/sim/sim.h"

void rules_check_move(struct sim *sim, const struct sm *sm, const struct change *c, int state)
{
    if (state != c->from)
        sim_fail(sim, "%s %" PRId64 "/%" PRId64 " %s: move from %s, but it is %s", sm->name, c->id,
                 c->generation_number, c->name ? c->name : "", sm_name(sm, c->from), sm_name(sm, state));
    if (!sm_may(sm, c->from, c->to))
        sim_fail(sim, "%s: no move from %s to %s", sm->name, sm_name(sm, c->from), sm_name(sm, c->to));
}

/* Checks that all ranks of the last generation have exited with 0, and that none was told to stop. */
void rules_check_success(struct sim *sim, const struct job_record *job)
{
    const struct records *r = &sim->durable.r;

    for (size_t i = 0; i < r->rank_count; i++) {
        if (r->ranks[i].job != job->id || r->ranks[i].generation != job->generation)
            continue;
        const struct spawn_record *s = durable_spawn(&sim->durable, job->id, r->ranks[i].spawn);
        if (!s || !s->exit_known || s->code || s->signal || (s->stopped && !sim->restores))
            sim_fail(sim, "job %" PRId64 " has succeeded, but not its spawn %" PRId64, job->id,
                     r->ranks[i].spawn);
    }
}

/* A node must not be lost while it tries to reach the host: while its messages wait unread, or while its
 * connections are not accepted. */
void rules_check_loss(struct sim *sim, const char *node)
{
    for (int i = 0; i < sim->machine_count; i++) {
        const struct machine *m = &sim->machines[i];

        if (strcmp(m->name, node) != 0 || !m->agent || m->cut_until > sim->now)
            continue;
        if (m->session >= 0 && !sim->sessions[m->session].broken && sim->sessions[m->session].unread)
            sim_fail(sim, "node %s is lost while its messages are unread", node);
        if (m->turned_away && host_shut(sim) && sim->now - m->turned_away < 2000)
            sim_fail(sim, "node %s is lost while its connections are not accepted", node);
    }
}

/* A job's number of nodes is within its limits. Without faults, a job that was stopped to be resized gets the
 * nodes that it was stopped for. */
static void rule_nodes(struct sim *sim, const struct generation_record *g)
{
    const struct job_record *job = durable_job(&sim->durable, g->job);
    struct sim_job *of = client_job(sim, g->job);
    int64_t min = job->nodes_max ? job->nodes_min : of->nodes_min;
    int64_t max = job->nodes_max ? job->nodes_max : of->nodes_max;

    /* Others may be late; and if the job was resized meanwhile, they come back before it leaves nodes. */
    if (of->quorum && g->world_size >= of->quorum) {
        min = 1;
        max = INT64_MAX;
    }
    if (g->node_count < min || g->node_count > max)
        sim_fail(sim, "job %" PRId64 " has %d nodes, but may have %" PRId64 " to %" PRId64, g->job,
                 g->node_count, min, max);
    if (of->shards && of->shards % g->world_size)
        sim_fail(sim, "job %" PRId64 ": its world size %d does not divide its %" PRId64 " shards", g->job,
                 g->world_size, of->shards);
    if (g->node_count < of->resize_to)
        sim_fail(sim, "job %" PRId64 ": it stopped for %" PRId64 " nodes and got %d", g->job, of->resize_to,
                 g->node_count);
    of->resize_to = 0;
}

/* A job with committed snapshots does not begin at step 0 unless a user has said so. */
void rules_check_source(struct sim *sim, const struct generation_record *g)
{
    const struct records *r = &sim->durable.r;
    const struct job_record *job = durable_job(&sim->durable, g->job);

    for (size_t i = 0; g->source_rank < 0 && i < r->snapshot_count; i++)
        if (r->snapshots[i].job == g->job && r->snapshots[i].generation > job->scratch_generation)
            sim_fail(sim,
                     "job %" PRId64 " generation %" PRId64 " begins at step 0, although step %" PRId64
                     " was committed",
                     g->job, g->number, r->snapshots[i].step);
}

/* The exit that ended the generation, if that was an error of the program; NULL: it was not. An error that survivors have outlived is
 * not charged, and counts, too. */
static const struct spawn_record *rule_error_of(const struct sim *sim, const struct generation_record *g)
{
    const struct spawn_record *s =
        g->failed_spawn ? durable_spawn(&sim->durable, g->job, g->failed_spawn) : NULL;

    if (g->state != GENERATION_FAILED || !(g->charged || g->error) || !s || !s->exit_known || s->stopped ||
        s->signal)
        return NULL;
    if (client_job(sim, g->job)->native)
        return s->code == EXIT_USAGE ? s : NULL;
    return s->code && s->code != EXIT_TRY_AGAIN ? s : NULL;
}

/* Lines differ between errors in their first words already, so whole tails can be compared. */
static bool rule_errors_same(const struct generation_record *g, const struct spawn_record *a,
                             const struct generation_record *h, const struct spawn_record *b)
{
    bool both_soon = a->ended_ms - a->started_ms < 10000 && a->ended_ms >= a->started_ms &&
                     b->ended_ms - b->started_ms < 10000 && b->ended_ms >= b->started_ms;

    return a->code == b->code && a->stderr_tail && b->stderr_tail &&
           !strcmp(a->stderr_tail, b->stderr_tail) &&
           (both_soon || (g->has_step && h->has_step && g->last_step == h->last_step));
}

/* No generation follows an error that a restart would repeat, and none is the third that ends in the same way. */
static void rule_restarts(struct sim *sim, const struct generation_record *fresh)
{
    const struct records *r = &sim->durable.r;
    const struct sim_job *job = client_job(sim, fresh->job);
    const struct generation_record *last = NULL, *before = NULL;

    if (job->gpus_each)
        return; /* an error on a GPU that is sick counts as a fault, and the records do not say when it was */
    for (size_t i = 0; i < r->generation_count; i++)
        if (r->generations[i].job == fresh->job && rule_error_of(sim, &r->generations[i])) {
            before = last;
            last = &r->generations[i];
        }
    if (!last || last->number != fresh->number - 1)
        return;
    const struct spawn_record *error = rule_error_of(sim, last);
    if (!job->restart_any)
        sim_fail(sim, "job %" PRId64 " generation %" PRId64 " follows exit code %d, an error of the program",
                 fresh->job, fresh->number, error->code);
    if (job->restart_any && before && rule_errors_same(before, rule_error_of(sim, before), last, error))
        sim_fail(sim,
                 "job %" PRId64 " generation %" PRId64 " follows the same error twice, in %" PRId64
                 " and %" PRId64,
                 fresh->job, fresh->number, before->number, last->number);
}

/* If a connected node keeps the job's last card, the job must not run again. */
static void rule_ended(struct sim *sim, const struct generation_record *g)
{
    for (int i = 0; i < sim->machine_count; i++) {
        const struct card *card = machine_card(&sim->machines[i], g->job);
        if (sim->machines[i].welcomed && card && card->ended)
            sim_fail(sim, "job %" PRId64 " runs again, although the card on %s says that it has ended",
                     g->job, sim->machines[i].name);
    }
}

void rules_check_generation(struct sim *sim, const struct generation_record *fresh)
{
    rule_nodes(sim, fresh);
    rule_ended(sim, fresh);
    rule_restarts(sim, fresh);
}

void rules_check_spawn(struct sim *sim, const struct spawn_record *s)
{
    for (char **uuid = s->gpu_uuids; uuid && *uuid; uuid++)
        if (durable_gpu(&sim->durable, s->node, *uuid) != GPU_WELL)
            sim_fail(sim, "%" PRId64 "/%" PRId64 " gets GPU %s of %s, which is sick or missing", s->job,
                     s->spawn, *uuid, s->node);
}

void rules_check_stops(struct sim *sim)
{
    const struct durable *d = &sim->durable;

    for (size_t i = 0; i < d->stopped_count; i++) {
        const struct job_record *job = durable_job(d, d->stopped[i]);
        if (job && job->state != JOB_STOPPING && !sm_terminal(&job_sm, (int)job->state))
            sim_fail(sim, "job %" PRId64 " was stopped by its user, and a card makes it go on", job->id);
    }
}

/* The end of a job and the loss of a node are told in the commit that makes them durable. */
void rules_check_told(struct sim *sim, const struct change *changes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct change *c = &changes[i];
        const bool ends = c->kind == CHANGE_JOB_MOVE && sm_terminal(&job_sm, c->to);
        const bool lost = c->kind == CHANGE_NODE_MOVE && c->to == NODE_LOST;
        bool told = !ends && !lost;

        for (size_t k = 0; k < count && !told; k++) {
            const struct notice_record *n = changes[k].kind == CHANGE_NOTICE ? changes[k].notice : NULL;
            told = n && (ends ? n->job == c->id && !strcmp(n->what, sm_name(&job_sm, c->to))
                              : !strcmp(n->what, "node_lost") && !strcmp(n->node, c->name));
        }
        if (!told)
            sim_fail(sim, "change %zu of a commit, of %s%" PRId64 ", is not told", i,
                     c->name ? c->name : "job ", c->id);
    }
}
