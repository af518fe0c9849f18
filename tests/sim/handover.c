/* What holds when a running job goes to other nodes without a stop. */
#include <inttypes.h>

#include "tests/sim/sim.h"

static bool forms_next(const struct change *changes, size_t count, const struct change *end)
{
    for (size_t i = 0; i < count; i++)
        if (changes[i].kind == CHANGE_GENERATION_INSERT && changes[i].generation->job == end->id &&
            changes[i].generation->number == end->generation_number + 1)
            return true;
    return false;
}

bool handover_is_member(const struct sim *sim, int64_t job, int64_t generation, int64_t spawn)
{
    for (size_t i = 0; i < sim->durable.r.rank_count; i++) {
        const struct rank_record *rank = &sim->durable.r.ranks[i];
        if (rank->job == job && rank->generation == generation && rank->spawn == spawn)
            return true;
    }
    return false;
}

const struct proc *handover_find_proc(const struct sim *sim, int64_t job, int64_t spawn)
{
    for (int i = 0; i < sim->machine_count; i++) {
        const struct proc *p = machine_proc(&sim->machines[i], job, spawn);
        if (p)
            return p;
    }
    return NULL;
}

/* Each member goes on or is told to end, and none is taken out of a step for which it has not been asked to wait. */
static void check_members(struct sim *sim, const struct change *end)
{
    const int64_t job = end->id, old = end->generation_number;
    int kept = 0;

    for (size_t i = 0; i < sim->durable.r.rank_count; i++) {
        const struct rank_record *rank = &sim->durable.r.ranks[i];
        if (rank->job != job || rank->generation != old)
            continue;
        const struct spawn_record *s = durable_spawn(&sim->durable, job, rank->spawn);
        const struct proc *p = handover_find_proc(sim, job, rank->spawn);
        bool goes_on = handover_is_member(sim, job, old + 1, rank->spawn);
        kept += goes_on;
        if (!goes_on && !s->revoked && !s->dead)
            sim_fail(sim, "job %" PRId64 " generation %" PRId64 ": rank %d is neither needed nor told to end",
                     job, old, rank->rank);
        if (p && p->state == PROC_RUNNING && p->generation == old && !p->leaving && !p->hung &&
            !p->handover_met)
            sim_fail(sim, "job %" PRId64 " generation %" PRId64 " ends in the midst of a step of rank %d",
                     job, old, rank->rank);
    }
    if (!kept)
        sim_fail(sim, "job %" PRId64 " generation %" PRId64 ": nobody is left who has the state", job, old);
}

void handover_check(struct sim *sim, const struct change *changes, size_t count)
{
    for (size_t i = 0; i < count && !sim->failed; i++) {
        const struct change *c = &changes[i];
        if (c->kind != CHANGE_GENERATION_MOVE || c->from != GENERATION_RUNNING || c->to != GENERATION_CLOSED)
            continue;
        const struct sim_job *of = client_job(sim, c->id);
        const struct job_record *job = durable_job(&sim->durable, c->id);
        if (!of || !of->native || !job || job->state == JOB_STOPPING || sm_terminal(&job_sm, job->state))
            continue; /* it was killed, or has succeeded */
        const struct generation_record *g = durable_generation(&sim->durable, c->id, c->generation_number);
        if (g->failed_spawn && !g->charged)
            continue; /* its node was at fault */
        if (!forms_next(changes, count, c)) {
            sim_fail(sim,
                     "job %" PRId64 " generation %" PRId64 " ends between two steps, and no other begins",
                     c->id, c->generation_number);
            return;
        }
        if (!of->quorum || !quorum_check(sim, changes, count, c))
            check_members(sim, c);
        if (g->charged)
            sim_fail(sim, "job %" PRId64 " generation %" PRId64 ": a hand-over counts as a restart", c->id,
                     c->generation_number);
        sim->handovers++;
    }
}
