#include "daemon/coordinator/service/convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/crypto/id.h"
#include "base/mem.h"
#include "base/text.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_codec.h"
#include "proto/rpc_usage.h"

/* protobuf-c declares char * where it only reads. */
static char *borrow_text(const char *t)
{
    return (char *)(uintptr_t)(t ? t : "");
}

/* A text that was cut to a length may end in half a character, which protobuf refuses. */
static char *clean_text(struct pool *pool, const char *t)
{
    return rpc_utf8_clean(pool_text(pool, t));
}

static size_t borrow_texts(struct pool *pool, char *const *list, char ***out)
{
    const size_t count = strv_len(list);
    *out = pool_alloc(pool, count * sizeof **out);
    for (size_t i = 0; i < count; i++)
        (*out)[i] = list[i];
    return count;
}

static Ddp__V1__Progress *convert_progress(struct pool *pool, const struct core_progress *p)
{
    Ddp__V1__Progress *out = pool_alloc(pool, sizeof *out);
    ddp__v1__progress__init(out);
    out->step = p->step;
    out->steps = p->steps;
    out->epoch = p->epoch;
    out->steps_per_s = p->steps_per_s;
    out->updated_ms = p->updated_ms;
    out->has_best_val = p->has_best_val;
    out->best_val = p->best_val;
    out->best_val_step = p->best_val_step;
    out->n_metrics = p->metric_count;
    out->metrics = pool_alloc(pool, p->metric_count * sizeof *out->metrics);
    for (size_t i = 0; i < p->metric_count; i++) {
        Ddp__V1__Metric *m = out->metrics[i] = pool_alloc(pool, sizeof *m);
        ddp__v1__metric__init(m);
        m->name = borrow_text(p->metrics[i].name);
        m->value = p->metrics[i].value;
    }
    out->n_loss_history = p->loss_count;
    out->loss_history = pool_alloc(pool, p->loss_count * sizeof(double));
    memcpy(out->loss_history, p->loss_history, p->loss_count * sizeof(double));
    return out;
}

static Ddp__V1__RankStatus *convert_rank(struct pool *pool, const struct core_rank_status *r)
{
    Ddp__V1__RankStatus *out = pool_alloc(pool, sizeof *out);
    ddp__v1__rank_status__init(out);
    out->rank = r->rank->rank;
    out->node = borrow_text(r->rank->node);
    out->local_rank = r->rank->local_rank;
    out->first_generation = r->spawn ? r->spawn->first_generation : 0;
    out->first_local_rank = r->spawn ? r->spawn->first_local_rank : 0;
    out->device = borrow_text(r->device);
    out->pid = r->spawn ? r->spawn->pid : 0;
    out->state = borrow_text(sm_name(&rank_sm, (int)r->rank->state));
    out->step = r->step;
    out->ms_per_step = r->ms_per_step;
    out->wait_ms = r->wait_ms;
    out->samples = r->samples;
    out->sample_ms = r->sample_ms;
    out->memory_bytes = r->memory_bytes;
    out->detail = clean_text(pool, r->detail);
    out->gpu_idle_ms = r->gpu_idle_ms;
    out->version = clean_text(pool, r->rank->version ? r->rank->version : "");
    out->computes = clean_text(pool, r->rank->computes ? r->rank->computes : "");
    if (r->usage) {
        out->usage = pool_alloc(pool, sizeof *out->usage);
        rpc_usage_pack(r->usage, out->usage);
    }
    return out;
}

size_t convert_lines(struct pool *pool, const char *joined, char ***out)
{
    if (!joined || !*joined)
        return 0;
    char *copy = clean_text(pool, joined);
    size_t count = 1, at = 0;
    for (const char *c = copy; *c; c++)
        count += *c == '\n';
    *out = pool_alloc(pool, count * sizeof **out);
    for (char *line = copy, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        (*out)[at++] = line;
    }
    return count;
}

static Ddp__V1__Failure *convert_failure(struct pool *pool, const struct rank_record *rank,
                                         const struct spawn_record *s)
{
    Ddp__V1__Failure *out = pool_alloc(pool, sizeof *out);
    ddp__v1__failure__init(out);
    out->rank = rank->rank;
    out->local_rank = rank->local_rank;
    out->node = borrow_text(s->node);
    out->code = s->code;
    out->signal = s->signal;
    out->out_of_memory = s->out_of_memory;
    out->message = clean_text(pool, s->message);
    out->generation = rank->generation;
    out->n_stderr_tail = convert_lines(pool, s->stderr_tail, &out->stderr_tail);
    return out;
}

static Ddp__V1__SnapshotStatus *convert_snapshot(struct pool *pool, const struct snapshot_record *s)
{
    Ddp__V1__SnapshotStatus *out = pool_alloc(pool, sizeof *out);
    ddp__v1__snapshot_status__init(out);
    out->step = s->step;
    out->generation = s->generation;
    out->path = borrow_text(s->path);
    out->bytes = s->bytes;
    out->committed_ms = s->committed_ms;
    out->digest = borrow_text(s->digest);
    out->n_nodes = borrow_texts(pool, s->nodes, &out->nodes);
    return out;
}

/* Inserts the age: "rank 2 killed by signal 9, cost 0.4 s" -> "rank 2 killed by signal 9, 4m ago, cost 0.4
 * s" */
static void convert_last_restart(struct pool *pool, const struct core_job_status *s, Ddp__V1__JobStatus *out)
{
    const char *text = s->job->last_restart;
    if (!text)
        return;
    const struct text ago = text_age(clock_wall_ms() - s->job->last_restart_ms);
    const char *cost = strstr(text, ", cost ");
    const int cause = (int)(cost ? cost - text : (ptrdiff_t)strlen(text));
    out->last_restart = pool_alloc(pool, sizeof *out->last_restart);
    out->last_restart[0] = pool_printf(pool, "%.*s, %s ago%s", cause, text, ago.text, cost ? cost : "");
    rpc_utf8_clean(out->last_restart[0]);
    out->n_last_restart = 1;
}

static void convert_job_record(const struct job_record *job, Ddp__V1__JobStatus *out)
{
    out->job = job->id;
    out->name = borrow_text(job->name);
    out->state = borrow_text(sm_name(&job_sm, (int)job->state));
    out->user = borrow_text(job->user);
    out->created_ms = job->created_ms;
    out->started_ms = job->started_ms;
    out->ended_ms = job->ended_ms;
    out->generation = job->generation;
    out->restarts_used = (int32_t)job->restarts_used;
    out->continues = job->continues;
    out->exit_code = job->exit_code;
}

/* The resources that the job asks for, nodes times workers: "2×4", "1:4×gpu" */
static char *resources_text(struct pool *pool, const struct job_spec *spec)
{
    static const char *const procs[] = {NULL, "gpu", "cpu", "auto"};
    char nodes[48], workers[24];
    const int64_t min = spec->nodes_min, max = spec->nodes_max;
    if (min == max)
        snprintf(nodes, sizeof nodes, "%" PRId64, min);
    else
        snprintf(nodes, sizeof nodes, "%" PRId64 ":%" PRId64, min, max);
    snprintf(workers, sizeof workers, "%" PRId64, spec->procs_per_node);
    return pool_printf(pool, "%s×%s%s", nodes, procs[spec->procs] ? procs[spec->procs] : workers,
                       spec->procs == JOB_PROCS_NUMBER && spec->device == JOB_DEVICE_CUDA ? " gpu" : "");
}

/* The directory on the node of rank 0: "/var/log/ddp/9/generation_2" */
static char *log_directory(struct pool *pool, const struct core_job_status *s)
{
    if (!s->log_dir || !s->generation)
        return borrow_text(s->log_dir);
    return pool_printf(pool, "%s/%" PRId64 "/generation_%" PRId64, s->log_dir, s->job->id, s->log_generation);
}

static bool variable_is_secret(const char *entry)
{
    static const char *const words[] = {"KEY", "TOKEN", "SECRET", "PASS"};
    char name[128];
    const size_t len = strcspn(entry, "=");
    snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), entry);
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcasestr(name, words[i]))
            return true;
    return false;
}

/* A few digits of its digest stand for a secret: enough to see whether two jobs have the same one, and too few to find it. */
void convert_environment(struct pool *pool, const struct job_record *job, Ddp__V1__JobStatus *out)
{
    char *const *env = job->env;
    out->n_env = borrow_texts(pool, env, &out->env);
    for (size_t i = 0; i < out->n_env; i++) {
        uint8_t digest[DIGEST_BYTES];
        out->env[i] = clean_text(pool, env[i]);
        if (!variable_is_secret(env[i]))
            continue;
        digest_sha256(digest, env[i], strlen(env[i]));
        out->env[i] = pool_printf(pool, "%.*s=(hidden, %02x%02x%02x%02x)", (int)strcspn(env[i], "="), env[i],
                                  digest[0], digest[1], digest[2], digest[3]);
    }
}

void convert_job(struct pool *pool, const struct core_job_status *s, bool whole, Ddp__V1__JobStatus *out)
{
    ddp__v1__job_status__init(out);
    convert_job_record(s->job, out);
    out->reason = clean_text(pool, s->reason);
    out->stall = clean_text(pool, s->stall);
    out->not_restarted = clean_text(pool, s->not_restarted);
    out->unsaved = clean_text(pool, s->unsaved);
    out->waits_for_space = s->waits_for_space;
    out->n_notes = borrow_texts(pool, s->notes, &out->notes);
    for (size_t i = 0; i < out->n_notes; i++)
        out->notes[i] = clean_text(pool, out->notes[i]);
    out->kind = borrow_text(s->spec && s->spec->kind == JOB_TRAIN ? "train" : "command");
    out->max_restarts = s->spec ? (int32_t)s->spec->max_restarts : 0;
    out->priority = s->spec ? (int32_t)s->spec->priority : 0;
    out->world_size = s->generation ? s->generation->world_size : 0;
    out->live = s->generation && core_generation_is_live(s->generation);
    out->joined = s->joined;
    out->ranks_present = (int32_t)s->presence.present;
    out->ranks_wanted = (int32_t)s->presence.wanted;
    out->missing = clean_text(pool, s->presence.missing);
    out->log_dir = log_directory(pool, s);
    if (s->spec)
        out->asks = resources_text(pool, s->spec);
    out->n_nodes = borrow_texts(pool, s->nodes, &out->nodes);
    if (s->progress)
        out->metrics_from = clean_text(pool, s->progress->captured);
    if (s->progress)
        out->progress = convert_progress(pool, s->progress);
    if (s->failure)
        out->failure = convert_failure(pool, s->failure_rank, s->failure);
    if (s->snapshot)
        out->snapshot = convert_snapshot(pool, s->snapshot);
    convert_last_restart(pool, s, out);
    if (!whole) /* lists need neither the job file nor the ranks */
        return;
    out->job_file = borrow_text(s->job->job_file);
    out->n_ranks = s->rank_count;
    out->ranks = pool_alloc(pool, s->rank_count * sizeof *out->ranks);
    for (size_t i = 0; i < s->rank_count; i++)
        out->ranks[i] = convert_rank(pool, &s->ranks[i]);
}

static Ddp__V1__Gpu *convert_gpu(struct pool *pool, const struct core_gpu *g)
{
    Ddp__V1__Gpu *out = pool_alloc(pool, sizeof *out);
    ddp__v1__gpu__init(out);
    out->uuid = borrow_text(g->uuid);
    out->name = borrow_text(g->name);
    out->memory_bytes = g->memory_bytes;
    out->index = g->index;
    out->healthy = g->healthy;
    out->problem = borrow_text(g->problem);
    out->temperature = g->temperature;
    out->power_watts = g->power_watts;
    out->utilisation = g->utilisation;
    out->unmeasured = g->unmeasured;
    out->driver = borrow_text(g->driver);
    out->memory_used = g->memory_used;
    out->lost = g->lost;
    return out;
}

void convert_node(struct pool *pool, const struct core_node_status *s, struct core_now now,
                  Ddp__V1__NodeStatus *out)
{
    ddp__v1__node_status__init(out);
    out->name = borrow_text(s->node->name);
    out->state = borrow_text(s->state);
    out->slots = s->node->cpu_slots;
    out->slots_free = s->slots_free;
    out->gpus_free = s->gpus_free;
    out->load = s->load;
    out->seen_ms = now.wall_ms - s->silent_ms; /* the core measures silence with a clock that never jumps */
    out->version = borrow_text(s->node->version);
    out->note = clean_text(pool, s->node->note);
    out->address = borrow_text(s->node->address);
    out->memory_bytes = s->node->memory_bytes;
    out->memory_free = s->memory_free;
    out->nccl_version = borrow_text(s->nccl);
    out->plugin = borrow_text(s->plugin);
    out->n_unknown_jobs = s->unknown_count;
    out->unknown_jobs = pool_alloc(pool, s->unknown_count * sizeof *out->unknown_jobs);
    for (size_t i = 0; i < s->unknown_count; i++)
        out->unknown_jobs[i] = s->unknown_jobs[i];
    out->slots_per_gpu = s->gpu_slots;
    out->n_jobs = s->job_count;
    out->jobs = pool_alloc(pool, s->job_count * sizeof *out->jobs);
    for (size_t i = 0; i < s->job_count; i++)
        out->jobs[i] = s->jobs[i];
    out->n_gpus = s->gpu_count;
    out->gpus = pool_alloc(pool, s->gpu_count * sizeof *out->gpus);
    for (size_t i = 0; i < s->gpu_count; i++)
        out->gpus[i] = convert_gpu(pool, &s->gpus[i]);
}

/* NULL: there is nothing to answer. */
static Ddp__V1__SpawnAnswer *convert_answer(struct pool *pool, const struct core_wish_spawn *s)
{
    if (!s->answer.commit && !s->answer.agrees && !s->answer.allowed && !s->answer.stop_step)
        return NULL;
    Ddp__V1__SpawnAnswer *out = pool_alloc(pool, sizeof *out);
    ddp__v1__spawn_answer__init(out);
    out->commit = s->answer.commit;
    out->error = borrow_text(s->answer.error);
    out->stale = s->answer.stale;
    out->agrees = s->answer.agrees;
    out->allowed = s->answer.allowed;
    out->stop_step = s->answer.stop_step;
    return out;
}

static Ddp__V1__SpawnWish *convert_spawn_wish(struct pool *pool, const struct core_wish_spawn *s,
                                              enum job_kind kind)
{
    Ddp__V1__SpawnWish *out = pool_alloc(pool, sizeof *out);
    ddp__v1__spawn_wish__init(out);
    out->spawn = s->spawn;
    out->generation = s->generation;
    out->rank = s->rank;
    out->local_rank = s->local_rank;
    out->first_generation = s->first_generation;
    out->first_local_rank = s->first_local_rank;
    out->cpu_slot = s->cpu_slot;
    out->stop = (Ddp__V1__StopMode)s->stop;
    out->keep_only = s->keep_only;
    if (kind == JOB_TRAIN) { /* only native workers make calls */
        out->token.data = (uint8_t *)(uintptr_t)s->token;
        out->token.len = 32;
    }
    out->n_gpu_uuids = borrow_texts(pool, s->gpu_uuids, &out->gpu_uuids);
    out->answer = convert_answer(pool, s);
    return out;
}

static Ddp__V1__GroupWish *convert_group_wish(struct pool *pool, const struct core_wish_group *g)
{
    /* The agent must report the exit of every spawn in the wish, so wanted_exits repeats all of them. */
    Ddp__V1__GroupWish *out = pool_alloc(pool, sizeof *out);
    ddp__v1__group_wish__init(out);
    out->job = g->job;
    out->generation = g->generation;
    out->kind = borrow_text(g->kind == JOB_TRAIN ? "train" : "command");
    out->job_file = borrow_text(g->job_file);
    out->user = borrow_text(g->user);
    out->n_env = borrow_texts(pool, g->env, &out->env);
    out->lease_ms = g->lease_ms;
    out->grace_ms = g->grace_ms;
    out->stall_timeout_ms = g->stall_timeout_ms;
    out->world_size = g->world_size;
    out->node_rank = g->node_rank;
    out->node_count = g->node_count;
    out->local_world_size = g->local_world_size;
    out->master_addr = borrow_text(g->master_addr);
    out->master_port = g->master_port;
    out->restart_count = (int32_t)g->restart_count;
    out->max_restarts = (int32_t)g->max_restarts;
    out->run_id = borrow_text(g->run_id);
    out->stop_signal = g->stop_signal;
    out->resume_path = borrow_text(g->resume_path);
    out->from_scratch = g->from_scratch;
    out->n_spawns = out->n_wanted_exits = g->spawn_count;
    out->spawns = pool_alloc(pool, g->spawn_count * sizeof *out->spawns);
    out->wanted_exits = pool_alloc(pool, g->spawn_count * sizeof *out->wanted_exits);
    for (size_t i = 0; i < g->spawn_count; i++) {
        out->spawns[i] = convert_spawn_wish(pool, &g->spawns[i], g->kind);
        out->wanted_exits[i] = g->spawns[i].spawn;
    }
    return out;
}

void convert_wish(struct pool *pool, const struct core_wish *wish, const char *cluster_id, Ddp__V1__Wish *out)
{
    ddp__v1__wish__init(out);
    out->cluster_id = borrow_text(cluster_id);
    out->epoch = wish->epoch;
    out->revision = wish->revision;
    out->n_groups = wish->group_count;
    out->groups = pool_alloc(pool, wish->group_count * sizeof *out->groups);
    for (size_t i = 0; i < wish->group_count; i++)
        out->groups[i] = convert_group_wish(pool, &wish->groups[i]);
}
