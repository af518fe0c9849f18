/* Raises faults at random times. In the end it repairs everything, so that all jobs can end. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

#define HOUR_MS 3600000LL

static struct machine *any_machine(struct sim *sim)
{
    return &sim->machines[sim_range(sim, 0, sim->machine_count - 1)];
}

static struct proc *any_proc(struct sim *sim, struct machine *m)
{
    return m->proc_count ? m->procs[sim_range(sim, 0, (int64_t)m->proc_count - 1)] : NULL;
}

static void coordinator_back(struct sim *sim, struct item *item)
{
    (void)item;
    if (!sim->host.core)
        host_start(sim);
}

static void crash_coordinator(struct sim *sim)
{
    if (!sim->host.core)
        return;
    if (sim_chance(sim, 0.6)) {
        sim->host.crash_next = (int)sim_range(sim, 1, 3);
        return;
    }
    host_crash(sim);
    sim_plan(sim, sim->now + sim_range(sim, 300, sim_chance(sim, 0.1) ? 120000 : 10000), coordinator_back);
}

static void agent_back(struct sim *sim, struct item *item)
{
    struct machine *m = &sim->machines[item->a];

    if (m->power && !m->agent)
        agent_start(sim, m);
}

static void kill_agent(struct sim *sim, struct machine *m)
{
    if (!m->power || !m->agent)
        return;
    sim_say(sim, "%s: agent dies", m->name);
    agent_stop(sim, m);
    sim_plan(sim, sim->now + sim_range(sim, 200, sim_chance(sim, 0.2) ? 100000 : 8000), agent_back)->a =
        m->index;
}

static void power_back(struct sim *sim, struct item *item)
{
    struct machine *m = &sim->machines[item->a];

    if (!m->power)
        machine_power_on(sim, m, item->b);
}

static void forget_node(struct sim *sim, struct item *item)
{
    const struct machine *m = &sim->machines[item->a];

    if (!m->power) /* the machine is still off, so its processes are dead */
        client_operate(sim, CORE_FORGET, m->name, 0, false);
}

/* The operator forgets a node that is only cut off. Its workers count as dead, but they live and hold their
 * slots. */
static void forget_wrongly(struct sim *sim, struct item *item)
{
    struct machine *m = &sim->machines[item->a];

    if (m->cut_until <= sim->now)
        return;
    for (size_t i = 0; i < m->proc_count; i++)
        m->procs[i]->disowned = true;
    client_operate(sim, CORE_FORGET, m->name, 0, false);
}

static void cut_off(struct sim *sim, struct machine *m)
{
    sim_say(sim, "%s: cut", m->name);
    m->cut_until = sim->now + sim_range(sim, 500, sim_chance(sim, 0.3) ? 90000 : 12000);
    if (sim_chance(sim, 0.2))
        sim_plan(sim, sim->now + sim_range(sim, 9000, 30000), forget_wrongly)->a = m->index;
}

static void power_off(struct sim *sim, struct machine *m)
{
    if (!m->power)
        return;
    machine_power_off(sim, m);
    struct item *item = sim_plan(sim, sim->now + sim_range(sim, 3000, 90000), power_back);
    item->a = m->index;
    item->b = sim_chance(sim, 0.2);
    if (sim_chance(sim, 0.3))
        sim_plan(sim, sim->now + sim_range(sim, 9000, 40000), forget_node)->a = m->index;
}

static void leave_cluster(struct sim *sim, struct machine *m)
{
    if (!m->power || !m->agent || !m->welcomed)
        return;
    sim_say(sim, "%s: says goodbye", m->name);
    for (size_t i = 0; i < m->proc_count; i++)
        proc_exit(sim, m, m->procs[i], 0, 15);
    agent_goodbye(sim, m);
    agent_stop(sim, m);
    sim_plan(sim, sim->now + sim_range(sim, 1000, 40000), agent_back)->a = m->index;
}

static void kill_proc(struct sim *sim, struct machine *m)
{
    struct proc *p = any_proc(sim, m);

    if (p && p->state == PROC_RUNNING)
        proc_exit(sim, m, p, sim_chance(sim, 0.5) ? 1 : 0, sim_chance(sim, 0.2) ? 6 : 9);
}

static void drain_node(struct sim *sim, struct machine *m)
{
    m->drained = !m->drained;
    client_operate(sim, m->drained ? CORE_DRAIN : CORE_UNDRAIN, m->name, 0, false);
}

/* A GPU becomes sick or is lost, sometimes while no agent runs. */
static void hurt_gpu(struct sim *sim, struct machine *m)
{
    if (!m->power || !m->gpu_count)
        return;
    int gpu = (int)sim_range(sim, 0, m->gpu_count - 1);
    if (sim_chance(sim, 0.5)) {
        m->sick |= UINT64_C(1) << gpu;
        return;
    }
    if (sim_chance(sim, 0.5))
        kill_agent(sim, m);
    machine_lose_gpu(sim, m, gpu);
}

static void back_up(struct sim *sim, struct item *item)
{
    (void)item;
    if (!sim->faults)
        return;
    sim_say(sim, "backup");
    durable_copy(&sim->backup, &sim->durable);
    sim_plan(sim, sim->now + sim_range(sim, 5000, 60000), back_up);
}

bool restore_lost(const struct sim *sim, int64_t job)
{
    if (!sim->restores || durable_job(&sim->durable, job))
        return false;
    for (int i = 0; i < sim->machine_count; i++)
        if (machine_card(&sim->machines[i], job))
            return false;
    return true;
}

/* A backup replaces the records. The next epoch follows from the time; if the clock was wrong, it is one that
 * nodes have seen already. Before the restore, clients whose requests made jobs get their replies. */
static void restore_backup(struct sim *sim)
{
    if (!sim->backup.commits)
        return;
    if (sim->host.core)
        host_crash(sim);
    sim_say(sim, "restored");
    for (int i = 0; i < sim->job_count; i++)
        for (size_t k = 0; k < sim->request_count && !sim->jobs[i].acked; k++)
            if (sim->requests[k].index == i)
                sim->jobs[i].acked = sim->requests[k].job;
    for (int i = 0; i < sim->job_count; i++)
        sim->jobs[i].resize_to = 0;
    int64_t next_job = sim->durable.r.next_job;
    durable_copy(&sim->durable, &sim->backup);
    sim->durable.r.age = RECORDS_RESTORED;
    if (sim_chance(sim, 0.5)) { /* the mark beside the database survived: it says which numbers were used */
        sim->durable.r.gap_from = sim->durable.r.gap_from ? sim->durable.r.gap_from : sim->durable.r.next_job;
        sim->durable.r.gap_to = sim->durable.r.next_job = next_job;
        sim->durable.r.age = RECORDS_NUMBERED;
    }
    sim->backup.commits = 0; /* restored twice, the same backup would assign numbers twice */
    if (sim_chance(sim, 0.7))
        sim->durable.epoch = 1000000 + sim->now;
    sim->restores++;
    sim->restored_at = sim->now;
    machine_note_restored(sim);
    sim->answer_count = 0;
    host_start(sim);
}

/* A file with a part is lost or damaged, mostly of a new snapshot. */
static bool lose_part(struct sim *sim, struct machine *m)
{
    if (!m->copy_count)
        return false;
    int64_t newest = (int64_t)m->copy_count - 1;
    struct copy *c = &m->copies[sim_chance(sim, 0.7) ? newest : sim_range(sim, 0, newest)];
    if (!c->parts || c->lost)
        return false;
    sim_say(sim, "%s: a part of job %" PRId64 " step %" PRId64 " is lost", m->name, c->job, c->step);
    c->lost = true;
    sim->parts_lost++;
    return true;
}

static void lose_parts(struct sim *sim, struct item *item)
{
    (void)item;
    if (!sim->faults)
        return;
    for (int tries = 0; tries < 2 * sim->machine_count && !lose_part(sim, any_machine(sim)); tries++)
        ;
    sim_plan(sim, sim->now + sim_range(sim, 0, 40000), lose_parts);
}

/* A file system is unmounted for a while, or its content is lost. */
static void hide_snapshots(struct sim *sim, struct machine *m)
{
    sim_say(sim, "%s: its snapshots are away", m->name);
    m->unmounted_until = sim->now + sim_range(sim, 1000, sim_chance(sim, 0.2) ? 200000 : 30000);
    if (sim_chance(sim, 0.1))
        m->copy_count = 0;
}

/* An administrator restarts jobs from scratch if their snapshots are lost, or are only on nodes where the job
 * cannot be placed, also because too few others have their version of NCCL. */
static void tend_jobs(struct sim *sim, struct item *item)
{
    (void)item;
    for (int i = 0; i < sim->job_count && sim->host.core; i++) {
        struct sim_job *job = &sim->jobs[i];
        struct core_job_status status;
        struct err e;
        bool waits = false, there = false;
        if (!job->acked || core_job_status(sim->host.core, job->acked, false, &status, &e) != ERR_OK)
            continue;
        waits = status.job->state == JOB_RECOVERING && (!strncmp(status.reason, "waits for its snap", 18) ||
                                                        strstr(status.reason, "where its snapshots are"));
        core_job_status_release(&status);
        job->lost_since = !waits ? 0 : job->lost_since ? job->lost_since : sim->now;
        for (int k = 0; k < sim->machine_count; k++)
            there |= worker_has_copy(sim, &sim->machines[k], job->acked);
        if (waits && sim->now - job->lost_since > (there ? 2 * HOUR_MS : 60000))
            client_operate(sim, CORE_RESTART, NULL, job->acked, true);
    }
    sim_plan(sim, sim->now + 30000, tend_jobs);
}

static void raise_fault(struct sim *sim, struct item *item)
{
    struct machine *m = any_machine(sim);
    struct proc *p;

    (void)item;
    if (!sim->faults)
        return;
    /* Only every third seed has restores, because some rules cannot be checked after a restore. */
    switch (sim_range(sim, 0, sim->seed % 3 == 2 ? 17 : 16)) {
    case 0:
    case 1:
        crash_coordinator(sim);
        break;
    case 2:
        kill_agent(sim, m);
        break;
    case 3:
        power_off(sim, m);
        break;
    case 4:
        cut_off(sim, m);
        break;
    case 5:
        if ((p = any_proc(sim, m)))
            supervisor_kill(sim, m, p->job);
        break;
    case 6:
    case 7:
        kill_proc(sim, m);
        break;
    case 8:
        agent_break(sim, m);
        break;
    case 9:
        sim->wall_offset += sim_range(sim, -7200000, 7200000);
        break;
    case 10:
        drain_node(sim, m);
        break;
    case 11:
        leave_cluster(sim, m);
        break;
    case 12:
        hurt_gpu(sim, m);
        break;
    case 13:
        host_deafen(sim, sim_range(sim, 300, sim_chance(sim, 0.3) ? 120000 : 12000));
        break;
    case 14:
        host_shut_door(sim, sim_range(sim, 300, sim_chance(sim, 0.3) ? 120000 : 12000));
        break;
    case 15:
        hide_snapshots(sim, m);
        break;
    case 16:
        group_sever(sim, any_proc(sim, m));
        break;
    case 17:
        restore_backup(sim);
        break;
    }
    sim_plan(sim, sim->now + sim_range(sim, 0, 16000 / (sim->machine_count > 8 ? 4 : 1)), raise_fault);
}

void chaos_start(struct sim *sim)
{
    sim->faults = true;
    sim_plan(sim, sim_range(sim, 0, 20000), raise_fault);
    stuck_start(sim);
    sim_plan(sim, sim_range(sim, 0, 40000), lose_parts);
    if (sim->seed % 3 == 2)
        sim_plan(sim, sim_range(sim, 5000, 60000), back_up);
}

static void undrain_node(struct sim *sim, struct item *item)
{
    for (int i = 0; i < sim->machine_count; i++)
        client_operate(sim, CORE_UNDRAIN, sim->machines[i].name, 0, false);
    if (item->a < 40) /* repeated, because a forgotten node may return later and still be drained */
        sim_plan(sim, sim->now + 30000, undrain_node)->a = item->a + 1;
}

void chaos_end(struct sim *sim)
{
    sim_say(sim, "faults end");
    sim->faults = false;
    sim->host.crash_next = 0;
    if (!sim->host.core)
        host_start(sim);
    for (int i = 0; i < sim->machine_count; i++) {
        struct machine *m = &sim->machines[i];
        m->cut_until = m->unmounted_until = 0;
        if (m->lost && m->power)
            machine_power_off(sim, m);
        if (!m->power)
            machine_power_on(sim, m, false);
        else if (!m->agent)
            agent_start(sim, m);
    }
    sim_plan(sim, sim->now + 5000, undrain_node);
    sim_plan(sim, sim->now + 5000, tend_jobs);
}
