/* Users repeat a submit until they have a reply, and sometimes once more. They also cancel, drain and forget.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/worker/exits.h"
#include "tests/sim/sim.h"

struct sim_job *client_job(const struct sim *sim, int64_t id)
{
    for (size_t i = sim->request_count; i-- > 0;)
        if (sim->requests[i].job == id)
            return (struct sim_job *)&sim->jobs[sim->requests[i].index];
    return NULL;
}

/* Returns whether the machine could run the job if it had no faults. */
static bool node_fits(const struct machine *m, const struct sim_job *job, int64_t per_node)
{
    if (!job->gpus_each)
        return m->cpu_slots >= per_node;
    if (job->gpus_each == JOB_GPUS_ALL)
        return m->gpu_count >= per_node;
    return m->gpu_count >= job->gpus_each && m->gpu_count * m->gpu_slots >= per_node * job->gpus_each;
}

/* Returns on how many nodes the job could run. If the version of NCCL matters, all must have the same. */
static int64_t biggest_fit(const struct sim *sim, const struct sim_job *job, int64_t per_node)
{
    int64_t any = 0, newer = 0, older = 0;

    for (int i = 0; i < sim->machine_count; i++) {
        const struct machine *m = &sim->machines[i];
        bool fit = node_fits(m, job, per_node);
        any += fit;
        newer += fit && !strcmp(m->nccl, "2.28.9");
        older += fit && !strcmp(m->nccl, "2.27.3");
    }
    return !job->gpus_each || !job->native ? any : newer > older ? newer : older;
}

static void choose_gpus(struct sim *sim, struct sim_job *job)
{
    static const int64_t each[] = {1, 1, 2, 3, JOB_GPUS_ALL};

    job->gpus_each =
        sim_chance(sim, sim_gpus(sim) ? 0.8 : 0.3) ? each[sim_range(sim, 0, ARRAY_LEN(each) - 1)] : 0;
    if (job->gpus_each && !biggest_fit(sim, job, 1))
        job->gpus_each = 1;
    if (job->gpus_each && !biggest_fit(sim, job, 1))
        job->gpus_each = 0;
}

static void print_place(struct sim *sim, const struct sim_job *job, int64_t per_node, struct buf *text)
{
    const char *device = !job->gpus_each ? "cpu" : sim_chance(sim, 0.3) ? "auto" : "cuda";

    buf_printf(text, "device: %s\n", device);
    if (job->gpus_each && !job->shards && sim_chance(sim, 0.2))
        buf_puts(text, "procs_per_node: gpu\n");
    else
        buf_printf(text, "procs_per_node: %" PRId64 "\n", per_node);
    if (job->gpus_each == JOB_GPUS_ALL)
        buf_puts(text, "gpus_per_proc: all\n");
    else if (job->gpus_each)
        buf_printf(text, "gpus_per_proc: %" PRId64 "\n", job->gpus_each);
}

/* Makes a job that the cluster could run if it had no faults. */
static void make_job(struct sim *sim, int index)
{
    struct sim_job *job = &sim->jobs[index];
    int64_t per_node = sim_range(sim, 1, 4);

    job->native = sim_chance(sim, 0.6);
    choose_gpus(sim, job);
    while (biggest_fit(sim, job, per_node) == 0)
        per_node--;
    int64_t most = biggest_fit(sim, job, per_node);
    int64_t nodes = sim_range(sim, 1, most < 6 ? most : 6), max = sim_chance(sim, 0.4) ? nodes + 3 : nodes;
    if (sim_chance(sim, 0.05))
        nodes = max = most; /* the whole cluster */
    snprintf(job->id, sizeof(job->id), "r%d", index);
    job->doomed = sim_chance(sim, 0.1);
    job->error = job->native            ? sim_chance(sim, 0.5) ? EXIT_USAGE : 3
                 : sim_chance(sim, 0.2) ? EXIT_TRY_AGAIN
                                        : 3;
    job->restart_any = sim_chance(sim, 0.5);
    job->varied = sim_chance(sim, 0.3);
    job->no_snapshots = sim_chance(sim, 0.15);
    job->stays = job->native && sim_chance(sim, 0.7);
    job->parts = job->native && !job->no_snapshots && (sim->seed + (uint64_t)index) % 2;
    job->submit_at = sim_range(sim, 0, 60000);
    job->duration = sim_range(sim, 500, 60000);
    job->target = sim_range(sim, 1, 80) * 20;
    job->resized_often = job->stays && sim_chance(sim, 0.7);
    if (job->resized_often)
        job->target *= 3;
    job->every = sim_range(sim, 2, 20) * 20;
    job->continues = -1;
    job->nodes_min = nodes;
    job->nodes_max = max;
    job->most = most;
    bool equal = sim->seed % 6 != 0; /* otherwise each host of `ddpctl run` chooses its number of processes */
    if (job->native && equal && !(nodes & (nodes - 1)) && !(per_node & (per_node - 1)) &&
        sim_chance(sim, 0.4))
        job->shards = nodes * per_node * (sim_chance(sim, 0.5) ? 2 : 1);
    CLEANUP(buf_release) struct buf text = {0};
    buf_printf(&text, "name: j%d\nnodes: \"%" PRId64 ":%" PRId64 "\"\n", index, nodes, max);
    print_place(sim, job, per_node, &text);
    buf_printf(&text, "max_restarts: %" PRId64 "\npriority: %" PRId64 "\ngrace: %" PRId64 "s\n",
               sim_range(sim, 0, 8), sim_range(sim, 0, 2), sim_range(sim, 1, 30));
    const bool few_ranks =
        job->stays && !job->shards && !job->gpus_each && max * per_node > 2 && max * per_node <= 8;
    if (few_ranks && (sim->seed / 2 + (uint64_t)index) % 2)
        job->quorum = 2 + (int64_t)(sim->seed % (uint64_t)(max * per_node - 1));
    job->divided = job->stays && !job->quorum && (sim->seed / 4 + (uint64_t)index) % 2;
    if (job->stays && sim_chance(sim, 0.4))
        buf_printf(&text, "max_replacements: %" PRId64 "\n", sim_range(sim, job->quorum ? 1 : 0, 3));
    stuck_choose_limit(sim, job);
    if (job->stall_ms)
        buf_printf(&text, "stall_timeout: %" PRId64 "s\n", job->stall_ms / 1000);
    if (job->restart_any)
        buf_puts(&text, "restart_on: any\n");
    if (sim_chance(sim, 0.1))
        buf_printf(&text, "time_limit: %" PRId64 "s\n", sim_range(sim, 5, 120));
    if (sim_chance(sim, 0.3))
        buf_printf(&text, "lease: %" PRId64 "s\n", sim_range(sim, 12, 90));
    if (job->native) {
        buf_puts(&text,
                 "train:\n  model: {type: linear, in: 20, out: 1}\n  data: {type: synthetic, samples: 64}\n"
                 "  steps: 100\n");
        if (job->shards)
            buf_printf(&text, "  global_batch: 64\n  reproducible: world\n  shards: %" PRId64 "\n",
                       job->shards);
        else
            buf_puts(&text, "  batch: 4\n");
        if (job->quorum)
            buf_printf(&text, "  sync: {type: diloco, quorum: %" PRId64 ", grace: %s}\n", job->quorum,
                       sim->seed % 3 ? "2s" : "auto");
        if (!job->no_snapshots)
            buf_printf(&text, "  snapshot: {dir: /out%d, every: 10}\n", index);
    } else {
        buf_puts(&text, "command: [\"true\"]\n");
    }
    snprintf(job->file, sizeof(job->file), "%s", text.data);
}

static void submit_job(struct sim *sim, struct item *item)
{
    struct sim_job *job = &sim->jobs[item->a];
    struct request r = {.kind = CORE_SUBMIT, .from = {-1, item->a, 0, ++job->attempt}};

    if (job->acked)
        return;
    snprintf(r.id, sizeof(r.id), "%s", job->id);
    snprintf(r.text, sizeof(r.text), "%s", job->file);
    host_request(sim, &r);
    sim_plan(sim, sim->now + sim_range(sim, 500, 6000), submit_job)->a = item->a;
}

static void cancel_job(struct sim *sim, struct item *item)
{
    const struct sim_job *job = &sim->jobs[item->a];

    if (job->acked && sim->faults)
        client_operate(sim, CORE_CANCEL, NULL, job->acked, sim_chance(sim, 0.3));
}

/* Resizes a job to a number of nodes that the cluster has; otherwise the job would never end. */
static void resize_job(struct sim *sim, struct item *item)
{
    const struct sim_job *job = &sim->jobs[item->a];
    struct request r = {.kind = CORE_RESIZE, .from = {-1, -1, 0, 0}, .job = job->acked};

    if (!job->acked || !sim->faults)
        return;
    r.generation = sim_range(sim, 1, job->most);
    r.step = sim_range(sim, r.generation, job->most);
    host_request(sim, &r);
}

static void restart_job(struct sim *sim, struct item *item)
{
    if (sim->jobs[item->a].acked && sim->faults)
        client_operate(sim, CORE_RESTART, NULL, sim->jobs[item->a].acked, false);
}

static void order_job(struct sim *sim, enum core_event_kind kind, int64_t job, int64_t step, bool flag)
{
    struct request r = {.kind = kind, .from = {-1, -1, 0, 0}, .job = job, .step = step, .flag = flag};

    host_request(sim, &r);
}

/* Releases jobs on hold repeatedly, because a request may be lost and a job on hold never ends. A restored backup may bring back a
 * job that had ended, and put it on hold again. */
static void release_job(struct sim *sim, struct item *item)
{
    const struct sim_job *job = &sim->jobs[item->a];
    const struct job_record *record = sim->host.core ? core_job(sim->host.core, job->acked) : NULL;

    if (!sim->faults && record && sm_terminal(&job_sm, (int)record->state))
        return;
    order_job(sim, CORE_HOLD, job->acked, 0, false);
    sim_plan(sim, sim->now + sim_range(sim, 1000, 30000), release_job)->a = item->a;
}

/* Changes the place of a job in the queue. */
static void move_job(struct sim *sim, struct item *item)
{
    const struct sim_job *job = &sim->jobs[item->a];

    if (!job->acked || !sim->faults)
        return;
    order_job(sim, CORE_PRIORITY, job->acked, sim_range(sim, -1, 3), false);
    if (!sim_chance(sim, 0.5))
        return;
    order_job(sim, CORE_HOLD, job->acked, 0, true);
    sim_plan(sim, sim->now + sim_range(sim, 1000, 30000), release_job)->a = item->a;
}

void client_reply(struct sim *sim, const struct reply *reply)
{
    if (reply->kind != CORE_SUBMIT)
        return;
    struct sim_job *job = &sim->jobs[reply->to.job];
    if (reply->err.code != ERR_OK) {
        sim_fail(sim, "submit %s: %s", job->id, reply->err.msg);
        return;
    }
    if (job->acked && job->acked != reply->job)
        sim_fail(sim, "request %s is job %" PRId64 " and job %" PRId64, job->id, job->acked, reply->job);
    job->acked = reply->job;
}

void client_operate(struct sim *sim, enum core_event_kind kind, const char *node, int64_t job, bool flag)
{
    struct request r = {.kind = kind, .from = {-1, -1, 0, 0}, .job = job, .flag = flag};

    snprintf(r.text, sizeof(r.text), "%s", node ? node : "");
    host_request(sim, &r);
}

void client_start(struct sim *sim)
{
    for (int i = 0; i < sim->job_count; i++) {
        make_job(sim, i);
        sim_plan(sim, sim->jobs[i].submit_at, submit_job)->a = i;
        if (sim_chance(sim, 0.1))
            sim_plan(sim, sim->jobs[i].submit_at + sim_range(sim, 0, 90000), cancel_job)->a = i;
        const int resizes = sim->jobs[i].resized_often ? 6 : 3;
        for (int k = 0; k < resizes && sim_chance(sim, sim->jobs[i].resized_often ? 0.9 : 0.3); k++)
            sim_plan(sim, sim->jobs[i].submit_at + sim_range(sim, 0, 90000), resize_job)->a = i;
        if (sim_chance(sim, 0.1))
            sim_plan(sim, sim->jobs[i].submit_at + sim_range(sim, 0, 90000), restart_job)->a = i;
        if ((sim->seed + (uint64_t)i) % 10 == 0)
            sim_plan(sim, sim->jobs[i].submit_at + sim_range(sim, 0, 30000), move_job)->a = i;
    }
}
