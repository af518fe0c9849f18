/* What must hold in the records after a transaction, whatever changes it had. */
#include <inttypes.h>
#include <string.h>

#include "tests/sim/sim.h"

#define SURVIVE_MS 61000 /* the core's limit, and a second for the commit */

static bool has_gpu(const struct spawn_record *s, const char *uuid)
{
    for (char **held = s->gpu_uuids; held && *held; held++)
        if (!strcmp(*held, uuid))
            return true;
    return false;
}

static int gpu_slots(const struct sim *sim, const char *node)
{
    for (int i = 0; i < sim->machine_count; i++)
        if (!strcmp(sim->machines[i].name, node))
            return sim->machines[i].gpu_slots;
    return 1;
}

static bool is_current(const struct sim *sim, const struct spawn_record *s)
{
    const struct generation_record *g = durable_generation_of(&sim->durable, s);

    return g && durable_open(g->state);
}

/* Whether the spawn counts as a holder of its slot. After a restore, only members of open generations do: a worker that was told to
 * stop may have ended since the backup, or its node's card may be from before that. The records call it alive until the node's facts leave
 * it out, and the node gets no new worker before that. Whether two processes really hold one slot, machine.c checks. */
static bool holds_surely(const struct sim *sim, const struct spawn_record *s)
{
    return !s->dead && (!sim->restores || is_current(sim, s));
}

static int gpu_holders(const struct sim *sim, const char *node, const char *uuid)
{
    const struct records *r = &sim->durable.r;
    int count = 0;

    for (size_t i = 0; i < r->spawn_count; i++)
        count += holds_surely(sim, &r->spawns[i]) && !strcmp(r->spawns[i].node, node) &&
                 has_gpu(&r->spawns[i], uuid);
    return count;
}

/* Returns whether the node has not yet got a wish from the restored records. Until then, the cards of nodes
 * may contradict each other about the workers there. */
static bool is_unheard(const struct sim *sim, const char *node)
{
    for (int i = 0; i < sim->machine_count; i++)
        if (!strcmp(sim->machines[i].name, node))
            return sim->restores &&
                   (!sim->machines[i].wish || sim->machines[i].wish->restores < sim->restores);
    return false;
}

/* Of the spawns that may live, no two hold the same CPU slot, and no more hold a GPU than may share it. */
void invariants_check_slots(struct sim *sim)
{
    const struct records *r = &sim->durable.r;

    for (size_t i = 0; i < r->spawn_count; i++)
        for (size_t k = i + 1; holds_surely(sim, &r->spawns[i]) && k < r->spawn_count; k++) {
            const struct spawn_record *a = &r->spawns[i], *b = &r->spawns[k];
            if (!holds_surely(sim, b) || strcmp(a->node, b->node) != 0 || is_unheard(sim, a->node))
                continue;
            bool clash = a->cpu_slot >= 0 && a->cpu_slot == b->cpu_slot;
            for (char **x = a->gpu_uuids; x && *x; x++)
                clash |= has_gpu(b, *x) && gpu_holders(sim, a->node, *x) > gpu_slots(sim, a->node);
            if (clash)
                sim_fail(sim, "%s: %" PRId64 "/%" PRId64 " and %" PRId64 "/%" PRId64 " hold the same slot",
                         a->node, a->job, a->spawn, b->job, b->spawn);
        }
}

/* Checks that no open generation has a worker on a GPU that its node has lost. */
void invariants_check_lost_gpus(struct sim *sim)
{
    const struct records *r = &sim->durable.r;

    for (size_t i = 0; i < r->spawn_count; i++) {
        const struct spawn_record *s = &r->spawns[i];
        const struct generation_record *g =
            s->dead || !s->gpu_uuids ? NULL : durable_generation_of(&sim->durable, s);
        if (!g || !durable_open(g->state) || g->state == GENERATION_DRAINING)
            continue;
        for (char **uuid = s->gpu_uuids; *uuid; uuid++)
            if (durable_gpu(&sim->durable, s->node, *uuid) == GPU_LOST)
                sim_fail(sim, "%" PRId64 "/%" PRId64 " goes on with %s, which is lost", s->job, s->spawn,
                         *uuid);
    }
}

static bool rank_is_open(const struct sim *sim, const struct rank_record *rank)
{
    const struct generation_record *g = durable_generation(&sim->durable, rank->job, rank->generation);

    return g && durable_open(g->state);
}

/* A spawn belongs to at most one open generation, and holds one rank of it. The rank is on the spawn's node. */
void invariants_check_memberships(struct sim *sim)
{
    const struct records *r = &sim->durable.r;

    for (size_t i = 0; i < r->rank_count; i++) {
        const struct rank_record *rank = &r->ranks[i];
        if (!rank_is_open(sim, rank))
            continue;
        const struct spawn_record *s = durable_spawn(&sim->durable, rank->job, rank->spawn);
        if (!s || strcmp(s->node, rank->node) != 0)
            sim_fail(sim, "job %" PRId64 ": rank %d on %s has spawn %" PRId64 ", which is not there",
                     rank->job, rank->rank, rank->node, rank->spawn);
        for (size_t k = i + 1; k < r->rank_count; k++)
            if (r->ranks[k].job == rank->job && r->ranks[k].spawn == rank->spawn &&
                rank_is_open(sim, &r->ranks[k]))
                sim_fail(sim,
                         "spawn %" PRId64 "/%" PRId64 " is rank %d of generation %" PRId64
                         " and rank %d of generation %" PRId64 ", although both are open",
                         rank->job, rank->spawn, rank->rank, rank->generation, r->ranks[k].rank,
                         r->ranks[k].generation);
    }
}

static bool node_is_connected(const struct sim *sim, const char *name)
{
    for (int i = 0; i < sim->machine_count; i++)
        if (!strcmp(sim->machines[i].name, name))
            return sim->machines[i].welcomed && sim->machines[i].session >= 0;
    return false;
}

/* The job's survivors may hold their slots: an old worker of the job must end first, or a node has yet to connect. */
static bool survivors_have_reason(const struct sim *sim, int64_t job)
{
    const struct records *r = &sim->durable.r;

    for (size_t i = 0; i < r->spawn_count; i++)
        if (r->spawns[i].job == job && !r->spawns[i].dead && r->spawns[i].revoked)
            return true;
    for (size_t i = 0; i < r->node_count; i++)
        if (r->nodes[i].state != NODE_LOST && r->nodes[i].state != NODE_LEFT &&
            !node_is_connected(sim, r->nodes[i].name))
            return true;
    return false;
}

static bool has_survivors(const struct sim *sim, const struct job_record *job)
{
    const struct records *r = &sim->durable.r;

    for (size_t i = 0; i < r->spawn_count; i++) {
        const struct spawn_record *s = &r->spawns[i];
        if (s->job == job->id && !s->dead && !s->revoked && !is_current(sim, s))
            return true;
    }
    return false;
}

/* Survivors of a generation do not hold slots for which others wait: they go on soon, or are told to stop. */
static void check_survivors(struct sim *sim, const struct job_record *job)
{
    struct sim_job *of = client_job(sim, job->id);

    if (!of || !of->native)
        return;
    if (!has_survivors(sim, job) || survivors_have_reason(sim, job->id) || sim->restores || sim->adopted) {
        of->survived_since = 0;
        return;
    }
    const struct generation_record *g = durable_generation(&sim->durable, job->id, job->generation);
    if (of->quorum && g && durable_open(g->state)) { /* a round has closed without them */
        of->survived_since = 0;
        return;
    }
    if (job->state != JOB_RECOVERING)
        sim_fail(sim, "job %" PRId64 " is %s, and has workers that wait for a generation", job->id,
                 sm_name(&job_sm, job->state));
    if (!of->survived_since)
        of->survived_since = sim->now;
    if (sim->now > of->survived_since + SURVIVE_MS)
        sim_fail(sim, "job %" PRId64 ": its survivors hold their slots and do not go on", job->id);
}

void invariants_check_jobs(struct sim *sim)
{
    const struct records *r = &sim->durable.r;

    for (size_t i = 0; i < r->job_count; i++) {
        const struct job_record *job = &r->jobs[i];
        const struct generation_record *g = durable_generation(&sim->durable, job->id, job->generation);
        bool is_open = g && durable_open(g->state);
        check_survivors(sim, job);
        if (sm_terminal(&job_sm, job->state) && is_open)
            sim_fail(sim, "job %" PRId64 " is %s with an open generation", job->id,
                     sm_name(&job_sm, job->state));
        if ((job->state == JOB_STARTING || job->state == JOB_RUNNING) && !is_open)
            sim_fail(sim, "job %" PRId64 " is %s without an open generation", job->id,
                     sm_name(&job_sm, job->state));
        int64_t charged = 0;
        for (size_t k = 0; k < r->generation_count; k++)
            charged += r->generations[k].job == job->id && r->generations[k].charged;
        if (sim->restores) /* cards do not contain generations that have ended */
            continue;
        if (charged < job->restarts_used || charged > job->restarts_used + 1)
            sim_fail(sim, "job %" PRId64 ": %" PRId64 " charged generations, %" PRId64 " restarts used",
                     job->id, charged, job->restarts_used);
    }
}
