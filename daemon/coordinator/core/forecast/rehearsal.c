#include "daemon/coordinator/core/forecast/rehearsal.h"

#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/internal_event.h"
#include "daemon/coordinator/core/nodes/inventory.h"
#include "daemon/coordinator/core/placement/placement.h"

/* Tokens of workers that never exist. */
static void rehearse_random(void *ctx, void *out, size_t size)
{
    (void)ctx;
    memset(out, 0, size);
}

static void copy_node(struct core *to, const struct node *from)
{
    struct node *node = core_add_node(to, &from->r);

    inventory_set(node, from->gpus, from->gpu_count);
    node->gpu_slots = from->gpu_slots;
    node->nccl = xstrdup(from->nccl);
    node->plugin = xstrdup(from->plugin);
    node->accounts = from->accounts ? strv_dup(from->accounts) : NULL;
    node->procs = from->procs;
    node->seat = from->seat;
    node->turn = from->turn;
    node->session = from->session;
    node->synced = from->synced; /* a pause of some seconds does not matter here */
}

void rehearsal_open(struct rehearsal *r, const struct core *core, struct core_now now)
{
    const struct core_env env = {.random = rehearse_random};

    *r = (struct rehearsal){.core = core_create(&core->config, &env)};
    r->core->rehearses = true;
    r->core->now = now;
    for (size_t i = 0; i < core->node_count; i++)
        copy_node(r->core, core->nodes[i]);
}

void rehearsal_close(struct rehearsal *r)
{
    core_free(r->core);
    core_out_release(&r->out);
    *r = (struct rehearsal){0};
}

/* The keys that placement reads. Snapshots are left out: which ones there are does not decide when a job starts. */
static void copy_spec(struct job_spec *to, const struct job_spec *from)
{
    *to = (struct job_spec){
        .kind = from->kind,
        .nodes_min = from->nodes_min,
        .nodes_max = from->nodes_max,
        .procs = from->procs,
        .procs_per_node = from->procs_per_node,
        .gpus_per_proc = from->gpus_per_proc,
        .device = from->device,
        .priority = from->priority,
        .join_timeout_ms = from->join_timeout_ms,
        .train = {.reproducible = from->train.reproducible, .shards = from->train.shards},
    };
}

static struct job *copy_job(struct rehearsal *r, const struct job *from, enum job_state state)
{
    const struct job_record record = {
        .id = from->r.id,
        .user = from->r.user,
        .state = state,
        .generation = from->r.generation,
        .next_spawn = from->r.next_spawn,
    };
    struct job *job = core_add_job(r->core, &record);

    copy_spec(&job->spec, &from->spec);
    return job;
}

struct job *rehearsal_add_running(struct rehearsal *r, const struct job *from)
{
    /* "starting": placement offers such a job no nodes, and asks none of it */
    struct job *job = copy_job(r, from, JOB_STARTING);

    for (size_t i = 0; i < from->spawn_count; i++) {
        const struct spawn_record *s = &from->spawns[i]->r;
        const struct spawn_record record = {.job = s->job,
                                            .spawn = s->spawn,
                                            .node = s->node,
                                            .cpu_slot = s->cpu_slot,
                                            .gpu_uuids = s->gpu_uuids};
        if (!s->dead && from->spawns[i]->node)
            job_add_spawn(r->core, job, &record);
    }
    return job;
}

/* Where a job that recovers had its ranks, because it prefers the same nodes. Its old workers count as dead. */
static void copy_layout(struct job *job, const struct job *from)
{
    const struct generation *old = job_current(from);

    if (!old)
        return;
    struct generation_record record = {.job = old->r.job,
                                       .number = old->r.number,
                                       .state = GENERATION_CLOSED,
                                       .world_size = old->r.world_size,
                                       .node_count = old->r.node_count};
    struct generation *g = job_add_generation(job, &record);
    for (int i = 0; i < g->r.world_size; i++) {
        const struct rank_record place = {
            .rank = i, .node_rank = old->ranks[i].r.node_rank, .node = old->ranks[i].r.node};
        rank_record_copy(&g->ranks[i].r, &place);
    }
}

struct job *rehearsal_add_waiting(struct rehearsal *r, const struct job *from)
{
    struct job *job = copy_job(r, from, from->r.state);

    copy_layout(job, from);
    job->not_before = from->not_before;
    job->drained_ms = from->drained_ms;
    job->targets = from->targets ? strv_dup(from->targets) : NULL;
    job->lost.said = xstrdup(from->lost.said);
    job->lost.pause_ms = from->lost.pause_ms;
    job->lost.found = from->lost.found ? strv_dup(from->lost.found) : NULL;
    job->lost.lacks = from->lost.lacks ? strv_dup(from->lost.lacks) : NULL;
    job->lost.needs_all = from->lost.needs_all;
    job->lost.avoid = from->lost.avoid ? strv_dup(from->lost.avoid) : NULL;
    for (size_t i = 0; i < from->left_out_count; i++) {
        const struct left_out *n = &from->left_out[i];
        job->left_out =
            array_grow(job->left_out, job->left_out_count, &job->left_out_cap, sizeof(*job->left_out));
        job->left_out[job->left_out_count++] =
            (struct left_out){xstrdup(n->node), xstrdup(n->why), n->until, n->pause_ms};
    }
    return job;
}

void rehearsal_place(struct rehearsal *r, struct core_now now)
{
    struct internal_event event;

    r->core->now = now;
    r->core->out = &r->out;
    placement_run(r->core);
    r->core->out = NULL;
    while (internal_event_take(r->core, &event))
        internal_event_release(&event);
    core_out_clear(&r->out);
}

void rehearsal_end(struct rehearsal *r, struct job *job)
{
    for (size_t i = 0; i < job->spawn_count; i++)
        if (job->spawns[i]->node)
            node_drop_spawn(r->core, job->spawns[i]->node, job->spawns[i]);
    core_remove_job(r->core, job);
}
