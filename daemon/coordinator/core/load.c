/* Turns durable records into the core's state, after a restart or when a card is adopted. Whatever is not
 * durable starts anew, on the safe side: leases, join deadlines and stop deadlines count in full from now on,
 * and offers come again with the next Join. */
#include "daemon/coordinator/core/load.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "daemon/coordinator/core/clock_doubt.h"
#include "daemon/coordinator/core/failure/restart_rule.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/generation_stop.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/nodes/inventory.h"
#include "daemon/coordinator/core/placement/survivors.h"
#include "daemon/coordinator/core/progress.h"

static void load_nodes(struct core *core, const struct records *records)
{
    for (size_t i = 0; i < records->node_count; i++) {
        struct node *node = core_add_node(core, &records->nodes[i]);
        node->heard_ms = node->alive_ms = core->now.boot_ms;
        inventory_parse(node);
    }
    core_await_nodes(core);
}

static bool load_job(struct core *core, const struct job_record *record)
{
    struct job *job = core_add_job(core, record);
    struct err e;

    if (job_parse(&job->spec, record->job_file, strlen(record->job_file), "job file", &e) == ERR_OK) {
        if (record->nodes_max > 0) {
            job->spec.nodes_min = record->nodes_min;
            job->spec.nodes_max = record->nodes_max;
        }
        return true;
    }
    log_warn("job_file_unreadable", "job=%" PRId64 " why=%s", record->id, LOG_Q(e.msg));
    job_release(&job->spec);
    job_defaults(&job->spec, JOB_COMMAND);
    return job_finished(job);
}

static enum err_code load_generations(struct core *core, const struct records *records, struct err *e)
{
    for (size_t i = 0; i < records->generation_count; i++) {
        const struct generation_record *record = &records->generations[i];
        struct job *job = core_find_job(core, record->job);
        if (!job || record->world_size < 1)
            return err_set(e, ERR_DATA_LOSS, "generation %" PRId64 " of job %" PRId64 " has no job",
                           record->number, record->job);
        struct generation *g = job_add_generation(job, record);
        core->generations++;
        for (int rank = 0; rank < record->world_size; rank++)
            g->ranks[rank].r.rank = -1; /* until its record comes */
    }
    return ERR_OK;
}

static enum err_code load_spawns(struct core *core, const struct records *records, struct err *e)
{
    for (size_t i = 0; i < records->spawn_count; i++) {
        const struct spawn_record *record = &records->spawns[i];
        struct job *job = core_find_job(core, record->job);
        if (!job)
            return err_set(e, ERR_DATA_LOSS, "spawn %" PRId64 " has no job %" PRId64, record->spawn,
                           record->job);
        struct spawn *s = job_add_spawn(core, job, record);
        s->wished_revision = s->node ? s->node->revision : 1;
        s->stays_unsaid = job->spec.kind == JOB_TRAIN;
    }
    return ERR_OK;
}

/* A card of an earlier version does not say for which membership a spawn was formed. In that version a spawn
 * had only one. */
static void keep_first_place(struct spawn *s, const struct rank_record *rank)
{
    if (s->r.first_generation)
        return;
    s->r.first_generation = rank->generation;
    s->r.first_local_rank = rank->local_rank;
}

static enum err_code load_ranks(struct core *core, const struct records *records, struct err *e)
{
    for (size_t i = 0; i < records->rank_count; i++) {
        const struct rank_record *record = &records->ranks[i];
        struct job *job = core_find_job(core, record->job);
        struct generation *g = job ? job_find_generation(job, record->generation) : NULL;
        struct spawn *s = job ? job_find_spawn(job, record->spawn) : NULL;
        if (!g || !s || record->rank < 0 || record->rank >= g->r.world_size)
            return err_set(e, ERR_DATA_LOSS, "rank %d of job %" PRId64 " has no generation or spawn",
                           record->rank, record->job);
        rank_record_copy(&g->ranks[record->rank].r, record);
        rank_give(&g->ranks[record->rank], s);
        keep_first_place(s, record);
    }
    return ERR_OK;
}

static enum err_code load_snapshots(struct core *core, const struct records *records, struct err *e)
{
    for (size_t i = 0; i < records->snapshot_count; i++) {
        const struct snapshot_record *record = &records->snapshots[i];
        struct job *job = core_find_job(core, record->job);
        if (!job)
            return err_set(e, ERR_DATA_LOSS, "a snapshot has no job %" PRId64, record->job);
        job->snapshots =
            array_grow(job->snapshots, job->snapshot_count, &job->snapshot_cap, sizeof(*job->snapshots));
        snapshot_record_copy(&job->snapshots[job->snapshot_count++], record);
    }
    return ERR_OK;
}

static enum err_code check_ranks(const struct job *job, struct err *e)
{
    for (size_t i = 0; i < job->generation_count; i++)
        for (int rank = 0; rank < job->generations[i]->r.world_size; rank++)
            if (!job->generations[i]->ranks[rank].spawn)
                return err_set(e, ERR_DATA_LOSS,
                               "rank %d of generation %" PRId64 " of job %" PRId64 " is missing", rank,
                               job->generations[i]->r.number, job->r.id);
    for (size_t i = 0; i < job->spawn_count; i++)
        if (!job->spawns[i]->rank)
            return err_set(e, ERR_DATA_LOSS, "spawn %" PRId64 " of job %" PRId64 " has no rank",
                           job->spawns[i]->r.spawn, job->r.id);
    return ERR_OK;
}

/* Whether members of an ended generation must still stop: those that have not gone on to a newer one, and
 * must not. */
static bool has_revoked_living(const struct generation *g)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (rank_is_held(&g->ranks[i]) && !g->ranks[i].spawn->r.dead && g->ranks[i].spawn->r.revoked)
            return true;
    return false;
}

/* Starts the deadlines of a loaded job. */
static void resume_job(struct core *core, struct job *job)
{
    struct generation *g = job_current(job);
    bool native = job->spec.kind == JOB_TRAIN;

    for (size_t i = 0; i < job->generation_count; i++) {
        struct generation *old = job->generations[i];
        old->born_ms = old->began_ms = core->now.boot_ms;
        /* it may still have workers, and only we remember that they must stop */
        if (!generation_open(old) && has_revoked_living(old))
            generation_stop_spawns(core, old, job->r.kill ? CORE_STOP_KILL : CORE_STOP_TERM);
    }
    job->charge_due = g && g->r.state == GENERATION_FAILED && g->r.charged &&
                      job->r.state == JOB_RECOVERING && survivors_wait(job);
    job->survivors_until = survivors_wait(job) ? core->now.boot_ms + SURVIVORS_WAIT_MS : 0;
    if (restart_rule_waits(job))
        generation_await_gpu_news(core,
                                  job); /* its workers may all be dead, then nothing else would end it */
    if (g && g->r.state == GENERATION_DRAINING)
        /* Whether a command's ranks agree on a step, we have forgotten. The supervisors of those that do not take this
         * for SIGTERM, and those that sent it know already. */
        generation_stop_spawns(core, g, CORE_STOP_SNAPSHOT);
    else if (g && (g->r.state == GENERATION_FORMING || g->r.state == GENERATION_READY))
        g->join_at = core->now.boot_ms + job->spec.join_timeout_ms;
    if (job->spec.time_limit_ms && job->r.started_ms) {
        int64_t used = core->now.wall_ms - job->r.started_ms;
        int64_t left = job->spec.time_limit_ms - used;
        /* the wall clock may have been set meanwhile, in either direction */
        if (left < 0)
            left = 0;
        if (left > job->spec.time_limit_ms)
            left = job->spec.time_limit_ms;
        job->limit_at = core->now.boot_ms + left;
    }
    if (job->r.fault_ms) {
        int64_t since = core->now.wall_ms - job->r.fault_ms;
        job->fault_boot_ms = core->now.boot_ms - (since > 0 ? since : 0);
    }
    job->progress.steps = native ? job->spec.train.steps : 0;
    progress_load(job);
    core->restarts += job->r.restarts_used;
}

/* Adds the jobs and all that belongs to them. *readable, which the caller frees, says for each job whether
 * its job file could be read. */
static enum err_code load_all_records(struct core *core, const struct records *records, bool **readable,
                                      struct err *e)
{
    *readable = xcalloc(records->job_count + 1, sizeof(**readable));
    for (size_t i = 0; i < records->job_count; i++)
        (*readable)[i] = load_job(core, &records->jobs[i]);
    if (load_generations(core, records, e) != ERR_OK || load_spawns(core, records, e) != ERR_OK ||
        load_ranks(core, records, e) != ERR_OK || load_snapshots(core, records, e) != ERR_OK)
        return e->code;
    for (size_t i = 0; i < records->job_count; i++)
        if (check_ranks(core_find_job(core, records->jobs[i].id), e) != ERR_OK)
            return e->code;
    return ERR_OK;
}

enum err_code load_job_whole(struct core *core, const struct records *records, struct err *e)
{
    bool *readable;
    enum err_code code = load_all_records(core, records, &readable, e);

    for (size_t i = 0; code == ERR_OK && i < records->job_count; i++) {
        struct job *job = core_find_job(core, records->jobs[i].id);
        resume_job(core, job);
        if (!readable[i])
            job_stop(core, job, JOB_FAILED, 125, true, "its job file cannot be read by this version");
    }
    free(readable);
    return code;
}

enum err_code load_records(struct core *core, const struct records *records, struct err *e)
{
    core->next_job = records->next_job > 0 ? records->next_job : 1;
    core->gap_from = records->gap_from;
    core->gap_to = records->gap_to;
    core->removed = xcalloc(records->removed_count + 1, sizeof(*core->removed));
    core->removed_count = records->removed_count;
    core->removed_cap = records->removed_count + 1;
    for (size_t i = 0; i < records->removed_count; i++)
        core->removed[i] = records->removed[i];
    clock_doubt_load(core, records->clock_ms);
    load_nodes(core, records);
    return load_job_whole(core, records, e);
}
