/* sim [--seeds FROM:COUNT] [-v]: runs a simulated cluster for each seed, first with faults, then without them
 * until all jobs have ended. Default: the first DDP_SIM_SEEDS seeds, or the first 300. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/sim/sim.h"

#define PATIENCE_MS (6 * 3600 * 1000LL)

static uint64_t current_seed;

static void on_abort(int signal)
{
    char text[64];
    int len = snprintf(text, sizeof(text), "aborted in seed %" PRIu64 "\n", current_seed);

    (void)signal;
    (void)!write(2, text, (size_t)len);
}

static bool all_ended(const struct sim *sim)
{
    for (int i = 0; i < sim->job_count; i++) {
        const struct job_record *job =
            sim->jobs[i].acked ? durable_job(&sim->durable, sim->jobs[i].acked) : NULL;
        if (sim->jobs[i].acked && restore_lost(sim, sim->jobs[i].acked))
            continue;
        if (!job || !sm_terminal(&job_sm, job->state))
            return false;
    }
    return true;
}

static bool all_dead(const struct sim *sim)
{
    for (int i = 0; i < sim->machine_count; i++)
        if (sim->machines[i].proc_count)
            return false;
    for (size_t i = 0; i < sim->durable.r.spawn_count; i++)
        if (!sim->durable.r.spawns[i].dead)
            return false;
    return true;
}

static void say_stuck(struct sim *sim)
{
    for (int i = 0; i < sim->job_count; i++) {
        const struct sim_job *job = &sim->jobs[i];
        struct core_job_status status;
        struct err e;
        if (!job->acked) {
            sim_fail(sim, "request %s was never acknowledged", job->id);
            return;
        }
        const struct job_record *record = durable_job(&sim->durable, job->acked);
        if (restore_lost(sim, job->acked))
            continue; /* a restore has lost this job: neither the records nor any node has it */
        if (!record) {
            sim_fail(sim, "job %" PRId64 " is known to a node, but was never adopted", job->acked);
            return;
        }
        if (sm_terminal(&job_sm, record->state) || !sim->host.core)
            continue;
        if (core_job_status(sim->host.core, job->acked, false, &status, &e) != ERR_OK)
            continue;
        sim_fail(sim, "job %" PRId64 " never ends: %s, %s", job->acked, sm_name(&job_sm, status.job->state),
                 status.reason);
        core_job_status_release(&status);
        return;
    }
    sim_fail(sim, "all jobs have ended, but a process is left");
}

static void run_to_end(struct sim *sim)
{
    sim->faults_end = sim_range(sim, 30000, 240000);
    host_start(sim);
    client_start(sim);
    for (int i = 0; i < sim->machine_count; i++)
        agent_start(sim, &sim->machines[i]);
    for (int i = 0; i < sim->machine_count; i++)
        stuck_watch(sim, &sim->machines[i]);
    chaos_start(sim);
    while (!sim->failed && sim->now < sim->faults_end && sim_step(sim))
        ;
    if (!sim->failed)
        chaos_end(sim);
    while (!sim->failed && !(all_ended(sim) && all_dead(sim))) {
        int64_t until = sim->now + 1000;
        while (!sim->failed && sim->now < until && sim_step(sim))
            ;
        if (!sim->failed && sim->now > sim->faults_end + PATIENCE_MS)
            say_stuck(sim);
    }
}

struct totals {
    int64_t events, commits, generations, resizes, restarts, ends[JOB_CANCELLED + 1], simulated_ms;
    int64_t restores, adopted, parts_lost, gone_back, lives, handovers, reconnected, rounds_closed, thinned,
        without_data, stuck;
};

static void add_totals(struct totals *t, const struct sim *sim)
{
    t->events += sim->events;
    t->commits += sim->durable.commits;
    t->resizes += sim->resizes;
    t->restores += sim->restores;
    t->adopted += sim->adopted;
    t->parts_lost += sim->parts_lost;
    t->gone_back += sim->gone_back;
    t->lives += sim->lives;
    t->handovers += sim->handovers;
    t->reconnected += sim->reconnected;
    t->without_data += sim->without_data;
    t->rounds_closed += sim->rounds_closed;
    t->thinned += sim->thinned;
    t->stuck += sim->stuck;
    t->simulated_ms += sim->now;
    t->generations += (int64_t)sim->durable.r.generation_count + sim->thinned;
    for (size_t i = 0; i < sim->durable.r.job_count; i++) {
        t->restarts += sim->durable.r.jobs[i].restarts_used;
        t->ends[sim->durable.r.jobs[i].state]++;
    }
}

static bool run_seed(uint64_t seed, bool verbose, struct totals *totals)
{
    struct sim *sim = calloc(1, sizeof(*sim));

    if (!sim)
        abort();
    current_seed = seed;
    sim->seed = sim->random = seed;
    sim_random(sim);
    sim->verbose = verbose;
    sim->machine_count =
        (int)(sim_chance(sim, 0.05) ? sim_range(sim, 10, MAX_MACHINES) : sim_range(sim, 1, 8));
    sim->job_count = (int)(sim_chance(sim, 0.1) ? sim_range(sim, 10, MAX_JOBS) : sim_range(sim, 1, 10));
    sim->loss = (double)sim_range(sim, 0, 15) / 100;
    sim->delay = sim_range(sim, 1, 300);
    sim->durable.r.next_job = 1;
    for (int i = 0; i < sim->machine_count; i++)
        machine_init(sim, i);
    run_to_end(sim);
    add_totals(totals, sim);
    bool ok = !sim->failed;
    if (!ok)
        printf("seed %" PRIu64 " failed at %.3f s: %s\n", seed, (double)sim->now / 1000, sim->why);
    sim_free(sim);
    free(sim);
    return ok;
}

int main(int argc, char **argv)
{
    uint64_t from = 1, count = 300;
    const char *wanted = getenv("DDP_SIM_SEEDS");
    bool verbose = false;
    struct totals totals = {0};
    int failed = 0;

    if (wanted)
        count = strtoull(wanted, NULL, 10);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--seeds") && i + 1 < argc &&
            sscanf(argv[i + 1], "%" SCNu64 ":%" SCNu64, &from, &count) == 2) {
            i++;
        } else if (!strcmp(argv[i], "-v")) {
            verbose = true;
        } else {
            fprintf(stderr, "usage: sim [--seeds FROM:COUNT] [-v]\n");
            return 2;
        }
    }
    log_init("sim", LOG_ERROR);
    signal(SIGABRT, on_abort);
    for (uint64_t seed = from; seed < from + count && failed < 10; seed++)
        failed += !run_seed(seed, verbose, &totals);
    printf("%" PRIu64 " seeds, %d failed: %.1f h simulated, %" PRId64 " events, %" PRId64 " commits, %" PRId64
           " generations, %" PRId64 " resizes, %" PRId64 " restarts; jobs: %" PRId64 " succeeded, %" PRId64
           " failed, %" PRId64 " cancelled; %" PRId64 " restores, %" PRId64 " jobs adopted; %" PRId64
           " parts lost, %" PRId64 " starts from an older snapshot, %" PRId64 " from memory, %" PRId64
           " handed over, %" PRId64 " connected anew, %" PRId64 " at the end of a round; %" PRId64
           " ranks stuck; %" PRId64 " without data; %" PRId64 " old generations removed\n",
           count, failed, (double)totals.simulated_ms / 3600000, totals.events, totals.commits,
           totals.generations, totals.resizes, totals.restarts, totals.ends[JOB_SUCCEEDED],
           totals.ends[JOB_FAILED], totals.ends[JOB_CANCELLED], totals.restores, totals.adopted,
           totals.parts_lost, totals.gone_back, totals.lives, totals.handovers, totals.reconnected,
           totals.rounds_closed, totals.stuck, totals.without_data, totals.thinned);
    return failed ? 1 : 0;
}
