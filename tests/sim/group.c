/* Groups of ranks: how they break, and the checks for a rank that makes a step in a group. */
#include <inttypes.h>
#include <string.h>

#include "tests/sim/sim.h"

static struct proc *find_member(const struct sim *sim, const struct rank_record *rank)
{
    for (int i = 0; i < sim->machine_count; i++) {
        struct proc *p = machine_proc(&sim->machines[i], rank->job, rank->spawn);
        if (p)
            return p;
    }
    return NULL;
}

/* Members that have ended with 0 made their last step together with the others. */
static bool takes_part(const struct sim *sim, const struct rank_record *rank)
{
    const struct proc *p = find_member(sim, rank);
    const struct spawn_record *s = durable_spawn(&sim->durable, rank->job, rank->spawn);

    if (p && p->state != PROC_EXITED)
        return p->generation == rank->generation && p->rank == rank->rank && !p->severed && !p->hung &&
               !p->stuck;
    return p ? !p->code && !p->signal : s && s->exit_known && !s->code && !s->signal;
}

/* The first rank of the process's generation, as the records have it, that takes no part in its collectives; NULL: none. */
static const struct rank_record *find_absent(const struct sim *sim, const struct proc *me)
{
    for (size_t i = 0; i < sim->durable.r.rank_count; i++) {
        const struct rank_record *rank = &sim->durable.r.ranks[i];
        if (rank->job == me->job && rank->generation == me->generation && !takes_part(sim, rank))
            return rank;
    }
    return NULL;
}

/* After a restore the records may lack the generation, and still nobody makes a step without a member that is stuck. */
static bool has_stuck_member(const struct sim *sim, const struct proc *me)
{
    for (int i = 0; i < sim->machine_count; i++)
        for (size_t k = 0; k < sim->machines[i].proc_count; k++) {
            const struct proc *p = sim->machines[i].procs[k];
            if (p->job == me->job && p->generation == me->generation && p->state == PROC_RUNNING && p->stuck)
                return true;
        }
    return false;
}

bool group_is_whole(const struct sim *sim, const struct proc *me)
{
    return !find_absent(sim, me) && !has_stuck_member(sim, me);
}

/* A step is a sum over all ranks of a generation that the coordinator has made. So a rank that has lost a peer makes no step
 * until the coordinator has made it a member of another generation. */
void group_check_step(struct sim *sim, const struct proc *me)
{
    const struct generation_record *g = durable_generation(&sim->durable, me->job, me->generation);
    const struct rank_record *absent = find_absent(sim, me);

    if (sim->restores) /* the records may lack the generation */
        return;
    if (absent)
        sim_fail(sim,
                 "job %" PRId64 " generation %" PRId64 ": rank %d makes step %" PRId64 " without rank %d",
                 me->job, me->generation, me->rank, me->step, absent->rank);
    if (!g || g->world_size != me->world_size)
        sim_fail(sim, "job %" PRId64 " generation %" PRId64 ": rank %d makes a step in a group of %d ranks",
                 me->job, me->generation, me->rank, me->world_size);
}

/* A member in an exchange notices at once, the others in their next collective. */
static void sever_member(struct sim *sim, struct machine *m, struct proc *p)
{
    p->severed = true;
    if (p->state == PROC_RUNNING && p->arrived && !p->holds && !p->hung && !p->stuck && !p->leaving &&
        !p->broken)
        worker_lose_group(sim, m, p);
}

/* The relay of the process's group dies, or the network fails for a moment: its ranks lose their connections. */
void group_sever(struct sim *sim, const struct proc *of)
{
    if (!of || !of->native || !of->ready || of->world_size < 2)
        return;
    const int64_t job = of->job, generation = of->generation;
    sim_say(sim, "job %" PRId64 " generation %" PRId64 " loses its connections", job, generation);
    for (int i = 0; i < sim->machine_count; i++)
        for (size_t k = 0; k < sim->machines[i].proc_count; k++)
            if (sim->machines[i].procs[k]->job == job && sim->machines[i].procs[k]->generation == generation)
                sever_member(sim, &sim->machines[i], sim->machines[i].procs[k]);
}

/* All ranks of the generation have said that their group is broken, so they go on in the next one. */
static bool is_broken_group(const struct change *c)
{
    return c->kind == CHANGE_GENERATION_MOVE && c->to == GENERATION_FAILED && c->text &&
           !strncmp(c->text, "the connections between the ranks were lost", 43);
}

void group_check_broken(struct sim *sim, const struct change *changes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!is_broken_group(&changes[i]))
            continue;
        for (size_t k = 0; k < sim->durable.r.rank_count; k++) {
            const struct rank_record *rank = &sim->durable.r.ranks[k];
            const struct proc *p =
                rank->job == changes[i].id && rank->generation == changes[i].generation_number
                    ? find_member(sim, rank)
                    : NULL;
            if (p && p->state == PROC_RUNNING && p->generation == rank->generation && !p->broken)
                sim_fail(sim,
                         "job %" PRId64 " generation %" PRId64 " ends, and rank %d has not lost its group",
                         rank->job, rank->generation, rank->rank);
        }
        sim->reconnected++;
    }
}
