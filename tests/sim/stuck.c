/* Ranks that make no progress: they compute for ever, are stopped, or wait in the kernel. Their jobs have a
 * stall_timeout, so the coordinator must find them from the agents' reports of quiet workers, and go on without
 * them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tests/sim/sim.h"

#define LOOK_MS 2000
#define IDLE_MS 1500
#define MOVED_MS 500
#define WORKED_MS 10000

bool stuck_runs(const struct sim *sim)
{
    return sim->seed % 4 == 2;
}

void stuck_choose_limit(struct sim *sim, struct sim_job *job)
{
    if (stuck_runs(sim) && job->native)
        job->stall_ms = sim_range(sim, 15, 40) * 1000;
}

/* A trainer that makes steps gets stuck in the next one. */
static void hold_rank(struct sim *sim, struct item *item)
{
    static const char how[] = "RRTD";
    struct machine *m = &sim->machines[sim_range(sim, 0, sim->machine_count - 1)];
    struct proc *p = m->proc_count ? m->procs[sim_range(sim, 0, (int64_t)m->proc_count - 1)] : NULL;

    (void)item;
    if (!sim->faults)
        return;
    if (p && p->native && p->ready && client_job(sim, p->job) && client_job(sim, p->job)->stall_ms)
        p->stuck_next = how[sim_range(sim, 0, 3)];
    sim_plan(sim, sim->now + sim_range(sim, 0, 5000), hold_rank);
}

void stuck_start(struct sim *sim)
{
    if (stuck_runs(sim))
        sim_plan(sim, sim_range(sim, 0, 20000), hold_rank);
}

/* If all ranks compute for ever, they look like ranks in a long computation, and the coordinator leaves them alone.
 * If one has already ended, the others have made their last step. */
static bool others_wait(const struct sim *sim, const struct proc *me)
{
    bool any = false;

    for (size_t i = 0; i < sim->durable.r.rank_count; i++) {
        const struct rank_record *rank = &sim->durable.r.ranks[i];
        if (rank->job != me->job || rank->generation != me->generation || rank->spawn == me->spawn)
            continue;
        const struct proc *p = handover_find_proc(sim, rank->job, rank->spawn);
        if (!p || p->state != PROC_RUNNING || p->leaving)
            return false;
        any |= p->stuck != 'R';
    }
    return any;
}

bool stuck_begins(struct sim *sim, struct proc *p)
{
    if (!p->stuck_next || (p->stuck_next == 'R' && !others_wait(sim, p)))
        return false;
    p->stuck = p->stuck_next;
    p->stuck_since = sim->now;
    sim->stuck++;
    sim_say(sim, "    %" PRId64 "/%" PRId64 " rank %d is stuck: %c", p->job, p->spawn, p->rank, p->stuck);
    return true;
}

/* ---- what the agent sees of them */

static bool is_watched(const struct sim *sim, const struct proc *p)
{
    const struct sim_job *job = client_job(sim, p->job);

    return p->state == PROC_RUNNING && p->native && job && job->stall_ms;
}

static int64_t quiet_ms(const struct sim *sim, int64_t from, int64_t least)
{
    return sim->now - from >= least ? sim->now - from : -1;
}

static struct core_activity activity_of(const struct sim *sim, const struct proc *p)
{
    const struct sim_job *job = client_job(sim, p->job);

    return (struct core_activity){.job = p->job,
                                  .spawn = p->spawn,
                                  .idle_ms = p->stuck == 'R' ? -1 : quiet_ms(sim, p->worked_until, IDLE_MS),
                                  .silent_ms = quiet_ms(sim, p->wrote_at, job->stall_ms / 2),
                                  .cpu_permille = p->stuck == 'R' ? 900 : 300,
                                  .state = p->stuck == 'T' || p->stuck == 'D' ? p->stuck : 0};
}

/* As the agent's worker_activity_tell: the times since when it is idle and silent have moved. */
static bool keep_told(const struct sim *sim, struct proc *p, const struct core_activity *a)
{
    const int64_t idle = a->idle_ms < 0 ? 0 : sim->now - a->idle_ms,
                  silent = a->silent_ms < 0 ? 0 : sim->now - a->silent_ms;
    const bool news = !idle != !p->told_idle || idle > p->told_idle + MOVED_MS ||
                      !silent != !p->told_silent || silent > p->told_silent + MOVED_MS;

    p->told_idle = idle;
    p->told_silent = silent;
    return news;
}

static void look_at_workers(struct sim *sim, struct item *item)
{
    struct machine *m = &sim->machines[item->a];
    struct core_activity list[64];
    size_t count = 0;
    bool news = false;

    for (size_t i = 0; i < m->proc_count; i++) {
        if (!is_watched(sim, m->procs[i]))
            continue;
        const struct core_activity a = activity_of(sim, m->procs[i]);
        news |= keep_told(sim, m->procs[i], &a);
        if ((a.idle_ms >= 0 || a.silent_ms >= 0) && count < ARRAY_LEN(list))
            list[count++] = a;
    }
    if (m->agent && m->welcomed && (news || m->activity_due)) {
        agent_activity(sim, m, list, count);
        m->activity_due = false;
    } else {
        m->activity_due |= news;
    }
    sim_plan(sim, sim->now + LOOK_MS, look_at_workers)->a = m->index;
}

void stuck_watch(struct sim *sim, const struct machine *m)
{
    if (stuck_runs(sim))
        sim_plan(sim, sim_range(sim, 0, LOOK_MS), look_at_workers)->a = m->index;
}

/* ---- checks */

/* Whether the rank has been stuck for so long that the coordinator can have no reason to name another one. */
static bool is_to_blame(const struct sim *sim, const struct rank_record *rank)
{
    const struct proc *p = handover_find_proc(sim, rank->job, rank->spawn);

    return p && p->state == PROC_RUNNING && p->stuck &&
           sim->now - p->stuck_since >= client_job(sim, rank->job)->stall_ms;
}

static void check_named(struct sim *sim, const struct generation_record *g)
{
    const struct proc *named = handover_find_proc(sim, g->job, g->failed_spawn);

    if (client_job(sim, g->job)
            ->gpus_each) /* on GPUs ranks may compute while they wait, so the coordinator cannot choose between two */
        return;
    /* A rank that worked a moment ago, but has not written for long, may also be named. */
    if (!named || named->state != PROC_RUNNING || named->stuck || named->hung ||
        named->worked_until > sim->now - WORKED_MS)
        return;
    for (size_t i = 0; i < sim->durable.r.rank_count; i++) {
        const struct rank_record *rank = &sim->durable.r.ranks[i];
        if (rank->job == g->job && rank->generation == g->number && is_to_blame(sim, rank))
            sim_fail(sim,
                     "job %" PRId64 " generation %" PRId64
                     ": rank %d is ended for a stall, and the job waits for rank %d",
                     g->job, g->number, named->rank, rank->rank);
    }
}

/* A job that stands still ends the rank for which the others wait, not one that waits. */
void stuck_check(struct sim *sim, const struct change *changes, size_t count)
{
    for (size_t i = 0; stuck_runs(sim) && i < count; i++) {
        const struct change *c = &changes[i];
        if (c->kind != CHANGE_GENERATION_MOVE || c->to != GENERATION_FAILED || !c->text ||
            (!strstr(c->text, "makes no progress") && !strstr(c->text, "computes without output")))
            continue;
        const struct generation_record *g = durable_generation(&sim->durable, c->id, c->generation_number);
        if (g && !sim->restores)
            check_named(sim, g);
    }
}
