/* Builds what ddpctl shows of jobs and nodes from the core's state, on demand. */
#include "daemon/coordinator/core/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/curves.h"
#include "daemon/coordinator/core/failure/restart_rule.h"
#include "daemon/coordinator/core/failure/stall.h"
#include "daemon/coordinator/core/jobs.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/nodes/idle.h"
#include "daemon/coordinator/core/nodes/inventory.h"
#include "daemon/coordinator/core/placement/left_out.h"
#include "daemon/coordinator/core/snapshots/snapshot_faults.h"
#include "daemon/coordinator/core/snapshots/snapshots.h"

const struct job_record *core_job(const struct core *core, int64_t id)
{
    const struct job *job = core_find_job(core, id);
    return job ? &job->r : NULL;
}

const struct job_spec *core_job_spec(const struct core *core, int64_t id)
{
    const struct job *job = core_find_job(core, id);
    return job ? &job->spec : NULL;
}

int64_t core_job_step(const struct core *core, int64_t id)
{
    const struct job *job = core_find_job(core, id);
    return job ? job->progress.step : 0;
}

const struct node_record *core_node(const struct core *core, const char *name)
{
    const struct node *node = core_find_node(core, name);
    return node ? &node->r : NULL;
}

static const struct generation *find_generation_of(const struct core *core, int64_t id, int64_t number)
{
    const struct job *job = core_find_job(core, id);
    return job ? job_find_generation(job, number) : NULL;
}

const struct generation_record *core_generation(const struct core *core, int64_t job, int64_t number)
{
    const struct generation *g = find_generation_of(core, job, number);
    return g ? &g->r : NULL;
}

const struct rank_record *core_rank(const struct core *core, int64_t job, int64_t number, int rank)
{
    const struct generation *g = find_generation_of(core, job, number);
    return g && rank >= 0 && rank < g->r.world_size ? &g->ranks[rank].r : NULL;
}

const struct rank_record *core_spawn_rank(const struct core *core, int64_t id, int64_t spawn)
{
    const struct job *job = core_find_job(core, id);
    const struct spawn *s = job ? job_find_spawn(job, spawn) : NULL;

    return s ? &s->rank->r : NULL;
}

/* "cpu3"; "gpu0 H200", of several "gpu0,gpu1 H200" */
static void name_device(const struct spawn *s, char *out, size_t size)
{
    size_t at = 0;

    if (!s->r.gpu_uuids) {
        snprintf(out, size, "cpu%d", s->r.cpu_slot);
        return;
    }
    const char *model = NULL;
    for (char **uuid = s->r.gpu_uuids; *uuid && s->node && at + 8 < size; uuid++)
        for (size_t i = 0; i < s->node->gpu_count; i++)
            if (!strcmp(s->node->gpus[i].uuid, *uuid)) {
                at += (size_t)snprintf(out + at, size - at, "%sgpu%d", at ? "," : "", s->node->gpus[i].index);
                model = s->node->gpus[i].name;
            }
    if (model && at < size)
        snprintf(out + at, size - at, " %s", model);
}

static void describe_exit(const struct spawn_record *s, char *out, size_t size)
{
    out[0] = 0;
    if (s->lost)
        snprintf(out, size, "lost");
    else if (s->exit_known && s->out_of_memory)
        snprintf(out, size, "ran out of memory");
    else if (s->exit_known && s->signal)
        snprintf(out, size, "killed by signal %d", s->signal);
    else if (s->exit_known && s->code)
        snprintf(out, size, "exited with code %d", s->code);
}

static void add_rank_views(const struct core *core, const struct generation *g, struct core_job_status *out)
{
    out->ranks = xcalloc((size_t)g->r.world_size, sizeof(*out->ranks));
    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;
        struct core_rank_status *rank = &out->ranks[out->rank_count++];
        rank->rank = &g->ranks[i].r;
        rank->spawn = &s->r;
        name_device(s, rank->device, sizeof(rank->device));
        describe_exit(&s->r, rank->detail, sizeof(rank->detail));
        rank->step = s->step;
        rank->memory_bytes = s->memory_bytes;
        rank->ms_per_step = s->ms_per_step;
        rank->wait_ms = s->wait_ms;
        rank->samples = s->samples;
        rank->sample_ms = s->sample_ms;
        rank->usage = idle_usage(core, s);
        rank->gpu_idle_ms = idle_gpu_ms(core, s);
    }
}

static void add_generation_view(const struct core *core, const struct generation *g,
                                struct core_job_status *out)
{
    int last = -1;

    out->generation = &g->r;
    out->nodes = xcalloc((size_t)g->r.node_count + 1, sizeof(char *));
    for (int i = 0; i < g->r.world_size; i++) {
        enum rank_state state = g->ranks[i].r.state;
        if (g->ranks[i].r.node_rank > last) {
            last = g->ranks[i].r.node_rank;
            out->nodes[last] = g->ranks[i].r.node;
        }
        out->joined += state == RANK_JOINED || state == RANK_TRAINING;
    }
    const struct node *first = core_find_node(core, out->nodes[0]);
    out->log_dir = first ? first->r.log_dir : NULL;
    out->log_generation = g->ranks[0].spawn->r.first_generation;
}

/* Whether this generation's failure explains the state of the job. A job that failed, stops or recovers is
 * explained only by what ended its last generation: not by a failure that it has survived, and not by a
 * failure that a time limit or a user preceded. */
static bool explains_state(const struct job *job, const struct generation *g)
{
    if (job->r.state != JOB_FAILED && job->r.state != JOB_STOPPING && job->r.state != JOB_RECOVERING)
        return true; /* the job runs again or ended otherwise: its last failure is shown as history */
    return g == job_current(job) && job->r.reason && g->r.reason && !strcmp(job->r.reason, g->r.reason);
}

static const struct rank *find_rank_of(const struct generation *g, int64_t spawn)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].r.spawn == spawn)
            return &g->ranks[i];
    return NULL;
}

static const struct rank *last_failure(const struct job *job)
{
    for (size_t i = job->generation_count; i-- > 0;) {
        const struct generation *g = job->generations[i];
        if (!g->r.failed_spawn)
            continue;
        if (!explains_state(job, g))
            return NULL;
        return find_rank_of(g, g->r.failed_spawn);
    }
    return NULL;
}

/* Estimates for how long the job will run: at its present pace, at most until its time limit. 0: unknown. */
static int64_t time_left(const struct core *core, const struct job *job)
{
    const struct core_progress *p = &job->progress;
    int64_t left = 0, spent = core->now.boot_ms - job->pace.boot_ms, done = p->step - job->pace.step;

    if (job->pace.boot_ms && p->steps > p->step && done > 0)
        left = (int64_t)((double)spent / (double)done * (double)(p->steps - p->step));
    if (job->limit_at && (!left || job->limit_at - core->now.boot_ms < left))
        left = job->limit_at - core->now.boot_ms;
    return left;
}

/* "waits for 4 GPUs on box2: job 9 holds them, for about 3m05s" */
static void say_reason(const struct core *core, const struct job *job, char *out, size_t size)
{
    const struct job *holder = job->waits && job->holder ? core_find_job(core, job->holder) : NULL;
    int64_t left = holder ? time_left(core, holder) : 0;

    if (left > 0)
        snprintf(out, size, "%s, for about %s", job->waits, text_duration(left).text);
    else
        snprintf(out, size, "%s", job->waits ? job->waits : job->r.reason ? job->r.reason : "");
}

enum err_code core_job_status(const struct core *core, int64_t id, bool with_ranks,
                              struct core_job_status *out, struct err *e)
{
    const struct job *job = core_find_job(core, id);
    const struct generation *g = job ? job_current(job) : NULL;

    if (!job)
        return err_set(e, ERR_NOT_FOUND, "there is no job %" PRId64, id);
    *out = (struct core_job_status){.job = &job->r, .spec = &job->spec, .progress = &job->progress};
    say_reason(core, job, out->reason, sizeof(out->reason));
    stall_text(core, job, core->now.boot_ms, out->stall, sizeof(out->stall));
    out->not_restarted = restart_rule_explain(job);
    presence_find(core, job, &out->presence);
    if (g)
        add_generation_view(core, g, out);
    if (g && with_ranks)
        add_rank_views(core, g, out);
    snapshot_faults_notes(core, job, out);
    jobs_tune_notes(job, out);
    idle_notes(core, job, out);
    curves_notes(job, out);
    left_out_notes(core, job, out);
    const struct rank *failed = last_failure(job);
    if (failed) {
        out->failure = &failed->spawn->r;
        out->failure_rank = &failed->r;
    }
    out->snapshot = snapshots_newest(job);
    return ERR_OK;
}

void core_job_status_release(struct core_job_status *status)
{
    free(status->nodes);
    free(status->ranks);
    strv_free(status->notes);
    free(status->not_restarted);
    *status = (struct core_job_status){0};
}

struct core_member *core_members(const struct core *core, int64_t id, int64_t number, struct core_now now,
                                 size_t *count)
{
    const struct generation *g = find_generation_of(core, id, number);
    struct core_member *members = g ? xcalloc((size_t)g->r.world_size + 1, sizeof(*members)) : NULL;

    *count = g ? (size_t)g->r.world_size : 0;
    for (size_t i = 0; i < *count; i++) {
        const struct spawn *s = g->ranks[i].spawn;
        members[i] = (struct core_member){
            .rank = &g->ranks[i].r,
            .spawn = &s->r,
            .step = s->step,
            .report_age_ms = s->report_ms ? now.boot_ms - s->report_ms : -1,
            .ms_per_step = s->ms_per_step,
            .wait_ms = s->wait_ms,
        };
    }
    return members;
}

int64_t *core_job_ids(const struct core *core, int64_t after, size_t *count)
{
    int64_t *ids = xcalloc(core->job_count + 1, sizeof(*ids));

    *count = 0;
    for (size_t i = 0; i < core->job_count; i++)
        if (core->jobs[i]->r.id > after)
            ids[(*count)++] = core->jobs[i]->r.id;
    return ids;
}

/* How many more workers could get this GPU. */
static int gpu_places_free(const struct node *node, const struct core_gpu *gpu)
{
    int left = (node->gpu_slots > 0 ? node->gpu_slots : 1) - inventory_holders(node, gpu->uuid);

    return gpu->healthy && left > 0 ? left : 0;
}

static void count_free(const struct node *node, int *slots, int *gpus)
{
    *slots = node->r.cpu_slots;
    *gpus = 0;
    for (size_t i = 0; i < node->spawn_count; i++)
        *slots -= node->spawns[i]->r.cpu_slot >= 0;
    for (size_t i = 0; i < node->gpu_count; i++)
        *gpus += gpu_places_free(node, &node->gpus[i]);
    if (*slots < 0)
        *slots = 0;
}

enum err_code core_node_status(const struct core *core, const char *name, struct core_now now,
                               struct core_node_status *out, struct err *e)
{
    const struct node *node = core_find_node(core, name);

    if (!node)
        return err_set(e, ERR_NOT_FOUND, "there is no node %s", name);
    *out = (struct core_node_status){
        .node = &node->r,
        .state = node->r.state == NODE_DRAINING && !node->spawn_count ? "drained"
                                                                      : sm_name(&node_sm, node->r.state),
        .gpus = node->gpus,
        .gpu_count = node->gpu_count,
        .nccl = node->nccl,
        .plugin = node->plugin,
        .unknown_jobs = node->unknown_jobs,
        .unknown_count = node_gone(node) ? 0 : node->unknown_count,
        .gpu_slots = node->gpu_slots,
        .load = node->load,
        .memory_free = node->memory_free,
        .silent_ms = now.boot_ms - node->heard_ms,
    };
    count_free(node, &out->slots_free, &out->gpus_free);
    /* nothing is placed there, so nothing is free */
    if (node->r.drain || node_gone(node))
        out->slots_free = out->gpus_free = 0;
    out->jobs = xcalloc(node->spawn_count + 1, sizeof(*out->jobs));
    for (size_t i = 0; i < node->spawn_count; i++) {
        size_t k = 0;
        while (k < out->job_count && out->jobs[k] != node->spawns[i]->r.job)
            k++;
        if (k == out->job_count)
            out->jobs[out->job_count++] = node->spawns[i]->r.job;
    }
    return ERR_OK;
}

void core_node_status_release(struct core_node_status *status)
{
    free(status->jobs);
    *status = (struct core_node_status){0};
}

const char **core_node_names(const struct core *core, size_t *count)
{
    const char **names = xcalloc(core->node_count + 1, sizeof(*names));

    *count = core->node_count;
    for (size_t i = 0; i < core->node_count; i++)
        names[i] = core->nodes[i]->r.name;
    return names;
}

void core_totals(const struct core *core, struct core_totals *out)
{
    *out = (struct core_totals){.restarts = core->restarts, .generations = core->generations};
    for (size_t i = 0; i < core->job_count; i++)
        out->jobs[core->jobs[i]->r.state]++;
    for (size_t i = 0; i < core->node_count; i++) {
        const struct node *node = core->nodes[i];
        int slots_free, gpus_free;
        if (node_gone(node))
            continue;
        count_free(node, &slots_free, &gpus_free);
        out->nodes++;
        out->slots += node->r.cpu_slots;
        out->slots_busy += node->r.cpu_slots - slots_free;
        for (size_t k = 0; k < node->gpu_count; k++) {
            out->gpus++;
            out->gpus_sick += !node->gpus[k].healthy;
            bool busy = inventory_holders(node, node->gpus[k].uuid) > 0;
            out->gpus_busy += busy;
            out->gpus_free += !busy && node->gpus[k].healthy;
        }
    }
}
