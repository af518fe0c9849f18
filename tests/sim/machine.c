/* A machine: its disk, its supervisors and their workers. The supervisor has the lease and the exit records.
 * The agent (agent.c) makes the processes match the newest wish, renews the lease, and reports. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/worker/exits.h"
#include "tests/sim/sim.h"

#define LATE_MS 25000 /* a restored coordinator waits this long for its nodes before it places jobs again */

bool sim_gpus(const struct sim *sim)
{
    return sim->seed % 4 == 1;
}

void machine_init(struct sim *sim, int index)
{
    struct machine *m = &sim->machines[index];

    m->index = index;
    snprintf(m->name, sizeof(m->name), "box%d", index + 1);
    snprintf(m->instance, sizeof(m->instance), "%016" PRIx64, sim_random(sim));
    m->cpu_slots = (int)sim_range(sim, 1, 8);
    m->gpu_count = sim_chance(sim, sim_gpus(sim) ? 0.9 : 0.3) ? (int)sim_range(sim, 1, 8) : 0;
    m->gpu_slots = (int)sim_range(sim, 1, 3);
    m->nccl = sim_chance(sim, 0.7) ? "2.28.9" : sim_chance(sim, 0.7) ? "2.27.3" : "none";
    m->session = -1;
    m->power = true;
}

static void forget_procs(struct machine *m)
{
    for (size_t i = 0; i < m->proc_count; i++)
        free(m->procs[i]);
    m->proc_count = 0;
}

void machine_release(struct machine *m)
{
    forget_procs(m);
    free(m->procs);
    free(m->wish);
    free(m->copies);
}

struct proc *machine_proc(const struct machine *m, int64_t job, int64_t spawn)
{
    for (size_t i = 0; i < m->proc_count; i++)
        if (m->procs[i]->job == job && m->procs[i]->spawn == spawn)
            return m->procs[i];
    return NULL;
}

static const struct wished *find_wished(const struct machine *m, const struct proc *p)
{
    for (size_t i = 0; m->wish && i < m->wish->count; i++)
        if (m->wish->spawns[i].job == p->job && m->wish->spawns[i].spawn == p->spawn)
            return &m->wish->spawns[i];
    return NULL;
}

static void reapply_wish(struct sim *sim, struct item *item)
{
    struct machine *m = &sim->machines[item->a];

    if (m->power && m->agent)
        machine_apply(sim, m);
}

void proc_exit(struct sim *sim, struct machine *m, struct proc *p, int code, int signal)
{
    if (p->state == PROC_EXITED)
        return;
    p->state = PROC_EXITED;
    p->code = code;
    p->signal = signal;
    p->ended = sim_clock(sim).wall_ms;
    p->attempt++; /* so that replies which come later are ignored */
    p->watch_attempt++;
    sim_say(sim, "    %s: %" PRId64 "/%" PRId64 " rank %d exits %d/%d%s%s", m->name, p->job, p->spawn,
            p->rank, code, signal, p->lost ? " unseen" : "", p->lease_expired ? " by its lease" : "");
    agent_facts(sim, m);
    if (!find_wished(m, p))
        sim_plan(sim, sim->now, reapply_wish)->a = m->index;
}

/* Returns whether one of its GPUs would have more workers than may share it. */
static bool is_crowded(const struct machine *m, const struct proc *fresh)
{
    for (int gpu = 0; gpu < m->gpu_count; gpu++) {
        int holders = 0;
        if (!(fresh->gpus >> gpu & 1))
            continue;
        for (size_t k = 0; k < m->proc_count; k++)
            holders += m->procs[k]->state != PROC_EXITED && (m->procs[k]->gpus >> gpu & 1);
        if (holders > m->gpu_slots)
            return true;
    }
    return false;
}

/* Checks that the new process may run beside those that run, whatever the records say. */
static void check_start(struct sim *sim, const struct machine *m, const struct proc *fresh)
{
    if (fresh->native && fresh->gpus && !strcmp(m->nccl, "none"))
        sim_fail(sim, "job %" PRId64 " is placed on %s, which has no plugin", fresh->job, m->name);
    for (int i = 0; i < sim->machine_count; i++)
        for (size_t k = 0; k < sim->machines[i].proc_count; k++) {
            const struct proc *p = sim->machines[i].procs[k];
            if (p == fresh || p->state == PROC_EXITED)
                continue;
            if (!p->native && !p->disowned && p->job == fresh->job && p->generation != fresh->generation)
                sim_fail(sim, "job %" PRId64 ": generations %" PRId64 " and %" PRId64 " run at the same time",
                         p->job, p->generation, fresh->generation);
            if (p->job == fresh->job && p->generation == fresh->generation && p->native && p->gpus &&
                strcmp(sim->machines[i].nccl, m->nccl) != 0)
                sim_fail(sim, "job %" PRId64 ": NCCL %s on %s, %s on %s", p->job, sim->machines[i].nccl,
                         sim->machines[i].name, m->nccl, m->name);
            if (&sim->machines[i] == m &&
                ((p->cpu_slot >= 0 && p->cpu_slot == fresh->cpu_slot) || is_crowded(m, fresh)))
                sim_fail(sim, "%s: %" PRId64 "/%" PRId64 " starts in the slot of %" PRId64 "/%" PRId64,
                         m->name, fresh->job, fresh->spawn, p->job, p->spawn);
        }
}

static void note_start(struct sim *sim, int64_t job, int64_t spawn, const uint8_t token[32], int restores)
{
    sim->starts = array_grow(sim->starts, sim->start_count, &sim->start_cap, sizeof(*sim->starts));
    struct sim_start *start = &sim->starts[sim->start_count++];
    *start = (struct sim_start){.job = job, .spawn = spawn, .restores = restores};
    memcpy(start->token, token, sizeof(start->token));
}

void machine_note_restored(struct sim *sim)
{
    const struct records *r = &sim->durable.r;

    for (size_t i = 0; i < r->spawn_count; i++)
        note_start(sim, r->spawns[i].job, r->spawns[i].spawn, r->spawns[i].token, sim->restores);
}

/* Checks that the worker was not started before, and that a restored coordinator starts no worker of the records that it began
 * with: that worker may have ended since the backup. */
static void check_first_start(struct sim *sim, const struct machine *m, const struct proc *fresh)
{
    for (size_t i = 0; i < sim->start_count; i++) {
        const struct sim_start *start = &sim->starts[i];
        if (start->job != fresh->job || start->spawn != fresh->spawn ||
            memcmp(start->token, fresh->token, sizeof(fresh->token)) != 0)
            continue;
        if (!start->restores)
            sim_fail(sim, "%s: %" PRId64 "/%" PRId64 " is started a second time", m->name, fresh->job,
                     fresh->spawn);
        else if (m->wish->restores >= start->restores)
            sim_fail(sim, "%s: %" PRId64 "/%" PRId64 " of the restored records is started", m->name,
                     fresh->job, fresh->spawn);
    }
    note_start(sim, fresh->job, fresh->spawn, fresh->token, 0);
}

static void check_proc_lease(struct sim *sim, struct item *item)
{
    struct machine *m = &sim->machines[item->a];
    struct proc *p = machine_proc(m, item->b, item->c);

    if (!p || p->state == PROC_EXITED)
        return;
    if (sim->now < p->lease_from + p->lease_ms) {
        struct item *next = sim_plan(sim, p->lease_from + p->lease_ms, check_proc_lease);
        next->a = item->a;
        next->b = item->b;
        next->c = item->c;
        return;
    }
    p->lease_expired = true;
    proc_exit(sim, m, p, 0, 9);
}

void machine_lease_renewed(struct sim *sim, struct machine *m)
{
    (void)sim;
    for (size_t i = 0; i < m->proc_count; i++)
        if (m->procs[i]->lease_from < m->last_ack_sent)
            m->procs[i]->lease_from = m->last_ack_sent;
}

/* Whether a process of the job on another machine has a state of an earlier generation. */
static bool goes_on_elsewhere(const struct sim *sim, const struct machine *here, const struct proc *fresh)
{
    for (int i = 0; i < sim->machine_count; i++)
        for (size_t k = 0; k < sim->machines[i].proc_count && &sim->machines[i] != here; k++) {
            const struct proc *p = sim->machines[i].procs[k];
            if (p->job == fresh->job && p->spawn < fresh->spawn && p->state == PROC_RUNNING && p->live)
                return true;
        }
    return false;
}

static void proc_running(struct sim *sim, struct item *item)
{
    struct machine *m = &sim->machines[item->a];
    struct proc *p = machine_proc(m, item->b, item->c);

    if (!p || p->state != PROC_STARTING)
        return;
    if (sim->faults && sim_chance(sim, p->rank == 0 ? 0.02 : 0.0)) {
        p->port_busy = true;
        proc_exit(sim, m, p, 1, 0);
        return;
    }
    if (p->gpus & m->lost) { /* a lost device cannot be opened */
        proc_exit(sim, m, p, 1, 0);
        return;
    }
    if (sim->faults && sim_chance(sim, 0.01))
        m->account_at = sim->now + sim_range(sim, 0, 20000);
    if (sim->now < m->account_at) {
        p->not_started = p->node_trouble = p->no_account = true;
        m->refused = true;
        proc_exit(sim, m, p, 127, 0);
        return;
    }
    if (sim->faults && sim_chance(sim, 0.02)) {
        p->not_started = p->node_trouble = true;
        proc_exit(sim, m, p, 127, 0);
        return;
    }
    if (sim->faults && p->native && sim_chance(sim, 0.05))
        m->data_at = sim->now + sim_range(sim, 0, 60000);
    /* Otherwise the job would just fail. */
    if (p->native && sim->now < m->data_at && goes_on_elsewhere(sim, m, p)) {
        sim->without_data++;
        p->other_data = sim_chance(sim, 0.5);
        if (!p->other_data) { /* it has none */
            proc_exit(sim, m, p, EXIT_NO_RESTART, 0);
            return;
        }
    }
    p->state = PROC_RUNNING;
    p->started = sim_clock(sim).wall_ms;
    agent_facts(sim, m);
    worker_start(sim, m, p);
}

static void start_proc(struct sim *sim, struct machine *m, const struct wished *w)
{
    struct proc *p = xcalloc(1, sizeof(*p));

    *p = (struct proc){
        .job = w->job,
        .spawn = w->spawn,
        .generation = w->generation,
        .rank = w->rank,
        .local_rank = w->local_rank,
        .world_size = w->world_size,
        .cpu_slot = w->cpu_slot,
        .gpus = w->gpus,
        .native = w->native,
        .lease_ms = w->lease_ms,
        .grace_ms = w->grace_ms,
        .lease_from = m->last_ack_sent,
    };
    memcpy(p->token, w->token, sizeof(p->token));
    m->procs = array_grow(m->procs, m->proc_count, &m->proc_cap, sizeof(struct proc *));
    m->procs[m->proc_count++] = p;
    if (sim->now >= p->lease_from + p->lease_ms) { /* the last acknowledgement is too old for a start */
        p->lease_expired = true;
        proc_exit(sim, m, p, 0, 9);
        return;
    }
    check_first_start(sim, m, p);
    check_start(sim, m, p);
    struct item *lease = sim_plan(sim, p->lease_from + p->lease_ms, check_proc_lease);
    struct item *up = sim_plan(sim, sim->now + sim_range(sim, 5, 300), proc_running);
    lease->a = up->a = m->index;
    lease->b = up->b = p->job;
    lease->c = up->c = p->spawn;
}

static void proc_killed(struct sim *sim, struct item *item)
{
    struct machine *m = &sim->machines[item->a];
    struct proc *p = machine_proc(m, item->b, item->c);

    if (p)
        proc_exit(sim, m, p, 0, 9);
}

static void plan_kill(struct sim *sim, const struct machine *m, const struct proc *p, int64_t after)
{
    struct item *item = sim_plan(sim, sim->now + after, proc_killed);

    item->a = m->index;
    item->b = p->job;
    item->c = p->spawn;
}

static void stop_proc(struct sim *sim, struct machine *m, struct proc *p, enum core_stop how)
{
    if (p->state == PROC_EXITED || how <= p->stop)
        return;
    p->stop = how;
    if (how == CORE_STOP_KILL || p->state == PROC_STARTING) {
        plan_kill(sim, m, p, sim_range(sim, 1, 200));
        return;
    }
    if (how == CORE_STOP_TERM)
        plan_kill(sim, m, p, p->grace_ms);
    worker_stop(sim, m, p, how);
}

/* An exit record may be dropped only when the coordinator has committed it, or counts the spawn as dead for
 * another reason. */
static void check_unwanted(struct sim *sim, const struct machine *m, const struct proc *p)
{
    const struct spawn_record *s = durable_spawn(&sim->durable, p->job, p->spawn);

    if (m->wish && m->wish->restores < sim->restores)
        return; /* the wish is from before a restore: the card tells the coordinator about this spawn */
    if (s && !s->dead)
        sim_fail(sim, "%s drops the exit record of %" PRId64 "/%" PRId64 ", which is not committed", m->name,
                 p->job, p->spawn);
}

static bool has_ended(const struct sim *sim, int64_t id)
{
    const struct job_record *job = durable_job(&sim->durable, id);

    return job && sm_terminal(&job_sm, job->state);
}

/* The agent kills a worker that is not in the wish. Then the records must have its spawn or the end of its
 * job, unless the restored coordinator has stopped waiting for this node. */
static void check_unknown(struct sim *sim, const struct machine *m, const struct proc *p)
{
    if (sim->restores && !p->disowned && p->state != PROC_EXITED && m->wish &&
        m->wish->restores == sim->restores && sim->now < sim->restored_at + LATE_MS &&
        !durable_spawn(&sim->durable, p->job, p->spawn) && !has_ended(sim, p->job))
        sim_fail(sim, "%s kills %" PRId64 "/%" PRId64 ", which the restored records do not know", m->name,
                 p->job, p->spawn);
}

void machine_apply(struct sim *sim, struct machine *m)
{
    for (size_t i = 0; i < m->proc_count;) {
        struct proc *p = m->procs[i];
        if (find_wished(m, p)) {
            i++;
        } else if (p->state == PROC_EXITED) {
            check_unwanted(sim, m, p); /* the exit record is dropped */
            free(p);
            m->procs[i] = m->procs[--m->proc_count];
        } else {
            check_unknown(sim, m, p);
            stop_proc(sim, m, p, CORE_STOP_KILL);
            i++;
        }
    }
    for (size_t i = 0; m->wish && i < m->wish->count; i++) {
        const struct wished *w = &m->wish->spawns[i];
        struct proc *p = machine_proc(m, w->job, w->spawn);
        if (p)
            stop_proc(sim, m, p, w->stop);
        else if (w->stop == CORE_STOP_NONE && !w->keep_only) /* a spawn that is to stop is not started */
            start_proc(sim, m, w);
    }
    agent_facts(sim, m);
}

/* A GPU falls off the bus, and its workers hang. A running agent notices that. An agent that starts later may
 * not find the GPU in any list. */
void machine_lose_gpu(struct sim *sim, struct machine *m, int gpu)
{
    const uint64_t bit = UINT64_C(1) << gpu;

    sim_say(sim, "%s: gpu%d is lost", m->name, gpu);
    m->lost |= bit;
    if (!m->agent && sim_chance(sim, 0.7))
        m->gone |= bit;
    for (size_t i = 0; i < m->proc_count; i++)
        m->procs[i]->hung |= m->procs[i]->gpus & bit;
}

/* Workers die with their supervisor, so their exit codes are unknown. */
void supervisor_kill(struct sim *sim, struct machine *m, int64_t job)
{
    for (size_t i = 0; i < m->proc_count; i++)
        if (m->procs[i]->job == job && m->procs[i]->state != PROC_EXITED) {
            m->procs[i]->lost = true;
            proc_exit(sim, m, m->procs[i], 0, 0);
        }
}

void machine_power_off(struct sim *sim, struct machine *m)
{
    sim_say(sim, "%s: power off", m->name);
    agent_stop(sim, m);
    for (size_t i = 0; i < m->proc_count; i++)
        if (m->procs[i]->state != PROC_EXITED) {
            m->procs[i]->lost = true;
            proc_exit(sim, m, m->procs[i], 0, 0);
        }
    m->power = false;
}

void machine_power_on(struct sim *sim, struct machine *m, bool wiped)
{
    sim_say(sim, "%s: power on%s", m->name, wiped ? ", with an empty disk" : "");
    m->power = true;
    m->sick = m->lost = m->gone = 0;
    m->last_ack_sent = INT64_MIN / 2;
    if (wiped) {
        forget_procs(m);
        free(steal(m->wish));
        m->copy_count = m->card_count = 0;
        snprintf(m->instance, sizeof(m->instance), "%016" PRIx64, sim_random(sim));
    }
    agent_start(sim, m);
}
