#include "daemon/coordinator/core/jobs.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/job/job_tune.h"
#include "base/job/tell.h"
#include "base/mem.h"
#include "daemon/coordinator/core/cards/card.h"
#include "daemon/coordinator/core/clock_doubt.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/failure/fault_cost.h"
#include "daemon/coordinator/core/failure/stall.h"
#include "daemon/coordinator/core/generation_end.h"
#include "daemon/coordinator/core/generation_stop.h"
#include "daemon/coordinator/core/internal_event.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/notices.h"
#include "daemon/coordinator/core/placement/advice.h"
#include "daemon/coordinator/core/snapshots/snapshots.h"
#include "daemon/coordinator/core/wish.h"

#define RETAIN_EVERY_MS 60000

static const char *snapshot_dir(const struct job_spec *spec)
{
    return spec->kind == JOB_TRAIN ? spec->train.snapshot.dir : NULL;
}

static bool job_is_of(const struct job *job, const char *user)
{
    return job->r.user && !strcmp(job->r.user, user);
}

/* Whether the job has snapshots in its directory, or may write some there before a new job of `user` does. A job that has
 * never started keeps its directory only from its own user's jobs. Otherwise a job that is on hold, or too large for the
 * cluster, would keep the owner of a directory out of it, who cannot cancel that job. If both start after all, neither loads
 * snapshots of the other (snapshots.c), and the lock in the directory stops the second one. (A directory of the same name on
 * another node has a lock of its own.) */
static bool job_keeps_dir(const struct job *job, const char *user)
{
    if (snapshots_newest(job))
        return true;
    return !job_finished(job) && (job_current(job) || job_is_of(job, user));
}

/* The newest job that keeps the directory of `spec`. */
static struct job *snapshot_dir_owner(const struct core *core, const struct job_spec *spec, const char *user)
{
    const char *dir = snapshot_dir(spec);

    for (size_t i = core->job_count; dir && i-- > 0;) {
        const char *other = snapshot_dir(&core->jobs[i]->spec);
        if (other && !strcmp(dir, other) && job_keeps_dir(core->jobs[i], user))
            return core->jobs[i];
    }
    return NULL;
}

/* Decides which job's snapshots the new job starts from: those of the job that the request names, else those
 * of the job whose snapshot directory it takes over. */
static enum err_code check_lineage(const struct core *core, const struct core_event *event,
                                   const struct job_spec *spec, int64_t *continues, struct err *e)
{
    struct job *former = core_find_job(core, event->submit.continues);
    struct job *owner = snapshot_dir_owner(core, spec, event->submit.user);

    *continues = event->submit.continues;
    if (*continues && !former)
        return err_set(e, ERR_NOT_FOUND, "there is no job %" PRId64 " to continue", *continues);
    if (former && !job_finished(former))
        return err_set(e, ERR_FAILED_PRECONDITION, "job %" PRId64 " is %s; cancel it or wait until it ends",
                       former->r.id, sm_name(&job_sm, former->r.state));
    if (former && !snapshots_newest(former))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "job %" PRId64 " has no committed snapshot to continue from; to run it again: "
                       "`ddpctl show %" PRId64 " | ddpctl submit %s/dev/stdin`",
                       former->r.id, former->r.id, strv_len(former->r.env) ? "--export PATH " : "");
    if (!owner || owner == former)
        return ERR_OK;
    /* Two running jobs must not write into one directory. A finished job's snapshots are continued only if
     * the user says so, because the new job would overwrite them. */
    const char *dir = snapshot_dir(spec);
    if (!job_finished(owner))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s is the snapshot directory of job %" PRId64
                       ", which is %s; use --set train.snapshot.dir=%s2",
                       dir, owner->r.id, sm_name(&job_sm, owner->r.state), dir);
    /* The service compares users for a job that the request names. This one is found only here. */
    if (!event->submit.for_everybody && !job_is_of(owner, event->submit.user))
        return err_set(e, ERR_PERMISSION_DENIED,
                       "%s holds snapshots of job %" PRId64
                       ", which belongs to %.80s: only its owner or the role operate may "
                       "continue from them; use --set train.snapshot.dir=%s2",
                       dir, owner->r.id, owner->r.user && *owner->r.user ? owner->r.user : "an unknown user",
                       dir);
    if (!event->submit.resume && spec->train.resume != RESUME_CONTINUE)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s holds snapshots of job %" PRId64 " (step %" PRId64
                       "); use --resume to continue from them, or --set train.snapshot.dir=%s2",
                       dir, owner->r.id, snapshots_newest(owner)->step, dir);
    if (!*continues)
        *continues = owner->r.id;
    return ERR_OK;
}

/* A lease must outlast the longest silence of a node that is not lost, else workers would stop without a
 * cause. */
static enum err_code check_lease(const struct core *core, const struct job_spec *spec, struct err *e)
{
    int64_t least = core->config.node_timeout_ms + core->config.heartbeat_ms;

    if (spec->lease_ms >= least)
        return ERR_OK;
    return err_set(e, ERR_INVALID_ARGUMENT,
                   "job file: a lease of %" PRId64
                   " s is too short, because a node may be silent that long; use %" PRId64 "s or more",
                   spec->lease_ms / 1000, (least + 999) / 1000);
}

static bool environment_has(char *const *env, const char *entry)
{
    const size_t name = strcspn(entry, "=") + 1;

    for (; env && *env; env++)
        if (!strncmp(*env, entry, name))
            return true;
    return false;
}

/* A job that continues another one by number gets the environment of that job; variables of the request replace
 * those of the same name. Environments hold secrets that not even operators see, so only the user who has submitted
 * the other job inherits them. strv_free. */
static char **submit_environment(const struct core *core, const struct core_event *event, char ***warnings)
{
    const struct job *former = core_find_job(core, event->submit.continues);
    char **env = event->submit.env ? strv_dup(event->submit.env) : NULL;

    if (!former || !strv_len(former->r.env) ||
        strv_len(env) > WISH_VARIABLES) /* check_variables refuses so many */
        return env;
    if (!job_is_of(former, event->submit.user)) {
        CLEANUP(free_text)
        char *warning =
            xasprintf("job %" PRId64 " was submitted by another user, so the new job does not get "
                      "its environment: set the variables that it needs with --set env.NAME=VALUE",
                      former->r.id);
        *warnings = strv_append(*warnings, warning);
        return env;
    }
    for (char *const *entry = former->r.env; *entry; entry++)
        if (!environment_has(event->submit.env, *entry))
            env = strv_append(env, *entry);
    return env;
}

/* Every wish of a node carries the job file and the environment of each job there. */
enum err_code jobs_check_size(const char *job_file, char *const *env, struct err *e)
{
    size_t size = strlen(job_file);

    for (char *const *entry = env; entry && *entry; entry++)
        size += strlen(*entry) + 1;
    if (size <= WISH_REQUEST)
        return ERR_OK;
    return err_set(e, ERR_INVALID_ARGUMENT,
                   "job file and environment have %zu KiB, and at most %d KiB are allowed: export less, or "
                   "put data into files",
                   size >> 10, WISH_REQUEST >> 10);
}

static enum err_code check_variables(char *const *env, struct err *e)
{
    const size_t count = strv_len(env);

    return count > WISH_VARIABLES
               ? err_set(e, ERR_INVALID_ARGUMENT,
                         "the environment has %zu variables, and at most %d are allowed: export fewer", count,
                         WISH_VARIABLES)
               : ERR_OK;
}

static enum err_code check_tell(const struct core *core, const struct job_spec *spec, struct err *e)
{
    return spec->tell ? tell_check(spec->tell, core->config.tell_allow, e) : ERR_OK;
}

static size_t count_unfinished(const struct core *core)
{
    size_t count = 0;

    for (size_t i = 0; i < core->job_count; i++)
        count += !job_finished(core->jobs[i]);
    return count;
}

/* Adds a warning that says what keeps the nodes from ever running the job as they are now. Such a job waits all
 * the same, because nodes may come; with `now` a job that would wait for any reason is refused. */
static enum err_code check_place(const struct core *core, const struct core_event *event,
                                 const struct job_spec *spec, char ***warnings, struct err *e)
{
    const struct job asked = {.r = {.user = (char *)event->submit.user}, .spec = *spec};
    struct advice advice;

    advice_make(core, &asked, event->submit.now, &advice);
    CLEANUP(free_text) char *text = advice.text;
    if (event->submit.now && !advice.starts)
        return err_set(e, ERR_FAILED_PRECONDITION, "the job cannot start now and is not queued: %s", text);
    if (event->submit.now && spec->hold)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "the job cannot start now and is not queued: its job file says 'hold: true'");
    if (!advice.possible)
        *warnings = strv_append(*warnings, text);
    return ERR_OK;
}

/* Keys that a job file may have and that have no effect. They are no errors, because recorded jobs may have them. */
static void warn_of_unused_keys(const struct job_spec *spec, char ***warnings)
{
    if (spec->kind != JOB_TRAIN)
        return;
    if (spec->gpus_per_proc != 1 && spec->device != JOB_DEVICE_CPU)
        *warnings = strv_append(
            *warnings,
            "a rank of a train job computes on one GPU, and gpus_per_proc only keeps the others from other "
            "jobs: leave it out, and set procs_per_node to have more ranks");
    if (spec->train.schedule.min_lr > 0 && spec->train.schedule.type == SCHEDULE_CONSTANT)
        *warnings = strv_append(*warnings,
                                "schedule.min_lr has no effect on a constant schedule: set schedule.type to "
                                "linear or cosine");
}

static struct job *add_job(struct core *core, const struct core_event *event, struct job_spec *spec,
                           char **env, int64_t continues)
{
    struct job_record record = {
        .id = core->next_job++,
        .request_id = (char *)event->submit.request_id,
        .name = spec->name ? spec->name : (char *)"job",
        .user = (char *)event->submit.user,
        .job_file = (char *)event->submit.job_file,
        .env = env,
        .state = JOB_QUEUED,
        .continues = continues,
        .created_ms = core->now.wall_ms,
        .next_spawn = 1,
        .goal = JOB_SUCCEEDED,
    };
    memcpy(record.body_digest, event->submit.digest, DIGEST_BYTES);
    struct job *job = core_add_job(core, &record);
    job->spec = *spec;
    *spec = (struct job_spec){0};
    job->progress.steps = job->spec.kind == JOB_TRAIN ? job->spec.train.steps : 0;
    job->changed = true;
    return job;
}

void jobs_submit(struct core *core, const struct core_event *event)
{
    const char *id = event->submit.request_id;
    struct job *former = id && *id ? core_find_request(core, id) : NULL;
    struct job_spec spec = {0};
    int64_t continues = 0;
    char **warnings = NULL;
    char **env = submit_environment(core, event, &warnings);
    struct err e = {0};

    if (!id || !*id || strlen(id) > 128)
        err_set(&e, ERR_INVALID_ARGUMENT, "request_id must have 1 to 128 bytes");
    /* A client repeats a request whose reply was lost, under the same id: it gets the same job. */
    else if (former && memcmp(former->r.body_digest, event->submit.digest, DIGEST_BYTES) != 0)
        err_set(&e, ERR_ALREADY_EXISTS,
                "request id %s already created job %" PRId64 " from a different request", id, former->r.id);
    else if (former)
        emit_job_reply(core, event->call, former, true);
    else if (count_unfinished(core) >= (size_t)core->config.max_queued)
        err_set(&e, ERR_RESOURCE_EXHAUSTED,
                "%" PRId64 " jobs are queued or running, the most allowed: try again later",
                core->config.max_queued);
    else if (check_variables(env, &e) == ERR_OK &&
             jobs_check_size(event->submit.job_file, env, &e) == ERR_OK &&
             job_parse(&spec, event->submit.job_file, strlen(event->submit.job_file), "job file", &e) ==
                 ERR_OK &&
             check_lease(core, &spec, &e) == ERR_OK && check_tell(core, &spec, &e) == ERR_OK &&
             check_lineage(core, event, &spec, &continues, &e) == ERR_OK &&
             check_place(core, event, &spec, &warnings, &e) == ERR_OK) {
        struct job *job = add_job(core, event, &spec, env, continues);
        warn_of_unused_keys(&job->spec, &warnings);
        emit_job(core, job, CHANGE_JOB_INSERT);
        if (continues)
            emit_event(core, job, "job_queued", "queued, continues #%" PRId64, continues);
        else
            emit_event(core, job, "job_queued", "queued");
        emit_submit_reply(core, event->call, job, steal(warnings));
    }
    if (e.code)
        emit_fail(core, event->call, e.code, "%s", e.msg);
    strv_free(env);
    strv_free(warnings);
    job_release(&spec);
}

void jobs_cancel(struct core *core, const struct core_event *event)
{
    struct job *job = core_find_job(core, event->cancel.job);
    CLEANUP(free_text)
    char *why = event->cancel.why && *event->cancel.why
                    ? xstrdup(event->cancel.why)
                    : xasprintf("%sby %s", event->cancel.kill ? "killed " : "", event_who(event));

    if (!job) {
        emit_fail(core, event->call, ERR_NOT_FOUND, "there is no job %" PRId64, event->cancel.job);
        return;
    }
    if (event->cancel.signal < 0 || event->cancel.signal >= NSIG) {
        emit_fail(core, event->call, ERR_INVALID_ARGUMENT, "invalid signal: expected 0 to %d, got %d",
                  NSIG - 1, event->cancel.signal);
        return;
    }
    if (!job_finished(job)) {
        /* A job that is stopping has been sent its signal. A second call can only kill it (job_stop). */
        if (job->r.state != JOB_STOPPING)
            job->r.stop_signal = event->cancel.signal;
        job_stop(core, job, event->cancel.exit_code ? JOB_FAILED : JOB_CANCELLED, event->cancel.exit_code,
                 event->cancel.kill, why);
    }
    emit_job_reply(core, event->call, job, true);
}

/* ---- values that change while a job runs
 *
 * The happy path: the assignments are applied to the job file (base/job/job_tune.h), which is committed with a new revision
 * and an event. Watch brings it to rank 0. Rank 0 votes in the step that it makes then, all ranks take the values over after
 * that step, or at the end of its round, and rank 0's next Watch says which revision is in use (rendezvous.c).
 *
 * Failure modes: each generation starts with the newest job file, which Join brings to rank 0, so nothing is lost with
 * workers, agents or a coordinator. Several changes before a boundary become one. Steps after the last snapshot that are
 * made again use the new values. */

static const char *tune_when(const struct job *job)
{
    if (job->r.revision == job->r.revision_used)
        return "now";
    if (job->r.state != JOB_RUNNING)
        return "when the job runs";
    switch (job->spec.train.sync.type) {
    case SYNC_ALLREDUCE:
        return "at the next step";
    case SYNC_AUTO: /* only the trainers know what it has chosen */
        return "at the next step or at the end of the round";
    default:
        return "at the end of the round";
    }
}

void jobs_tune_notes(const struct job *job, struct core_job_status *out)
{
    if (job_finished(job) || job->r.revision == job->r.revision_used)
        return;
    CLEANUP(free_text)
    char *note = xasprintf("tuned values are not in use yet: they apply %s", tune_when(job));
    out->notes = strv_append(out->notes, note);
}

/* Returns the job if it can be tuned; else answers the call and returns NULL. */
static struct job *find_tunable_job(struct core *core, const struct core_event *event)
{
    struct job *job = core_find_job(core, event->tune.job);

    if (!job)
        emit_fail(core, event->call, ERR_NOT_FOUND, "there is no job %" PRId64, event->tune.job);
    else if (job->spec.kind != JOB_TRAIN)
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION,
                  "job %" PRId64 " is a command job: only train jobs can be tuned", job->r.id);
    else if (job_finished(job) || job->r.state == JOB_STOPPING)
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION, "job %" PRId64 " is %s", job->r.id,
                  sm_name(&job_sm, job->r.state));
    else
        return job;
    return NULL;
}

/* "ana tuned optimizer.lr 0.001 -> 0.0001, max_restarts 3 -> 9" */
static void say_tuned(struct core *core, const struct job *job, const char *who,
                      const struct job_tuned *tuned)
{
    CLEANUP(buf_release) struct buf text = {0};

    for (size_t i = 0; i < tuned->count; i++)
        buf_printf(&text, "%s%s %s -> %s", i ? ", " : "", tuned->changes[i].key, tuned->changes[i].from,
                   tuned->changes[i].to);
    emit_event(core, job, "job_tuned", "%s tuned %s", who, text.data);
}

void jobs_take_version(struct core *core, struct job *job, struct job_tuned *tuned)
{
    bool all_used = job->r.revision == job->r.revision_used;

    /* a resize outlives the version of the job file */
    tuned->spec.nodes_min = job->spec.nodes_min;
    tuned->spec.nodes_max = job->spec.nodes_max;
    job_release(&job->spec);
    job->spec = tuned->spec;
    tuned->spec = (struct job_spec){0};
    free(job->r.job_file);
    job->r.job_file = steal(tuned->text);
    job->r.revision++;
    /* the ranks read none of what has changed */
    if (all_used && !tuned->train)
        job->r.revision_used = job->r.revision;
    job->changed = true;
    emit_job(core, job, CHANGE_JOB_PUT);
    card_changed(core, job);
    raise_job_tuned(core, job);
}

static void reply_tuned(struct core *core, const struct core_event *event, const struct job *job,
                        const struct job_tuned *tuned)
{
    struct core_effect *effect = emit_effect(core, EFFECT_REPLY);

    effect->call = event->call;
    effect->job = job->r.id;
    effect->existed = tuned->count == 0;
    effect->revision = job->r.revision;
    effect->when = tune_when(job);
    for (size_t i = 0; i < tuned->count; i++) {
        effect->texts = strv_append(effect->texts, tuned->changes[i].key);
        effect->texts = strv_append(effect->texts, tuned->changes[i].from);
        effect->texts = strv_append(effect->texts, tuned->changes[i].to);
    }
}

void jobs_tune(struct core *core, const struct core_event *event)
{
    struct job *job = find_tunable_job(core, event);
    CLEANUP(job_tuned_release) struct job_tuned tuned = {0};
    struct err e = {0};

    if (!job)
        return;
    if (job_tune(&tuned, job->r.job_file, event->tune.assignments, &e)) {
        emit_fail(core, event->call, e.code, "%s", e.msg);
        return;
    }
    /* A printed job file can be longer than the one that the user has written. */
    if (tuned.count && jobs_check_size(tuned.text, job->r.env, &e)) {
        emit_fail(core, event->call, e.code, "%s", e.msg);
        return;
    }
    if (tuned.count) {
        say_tuned(core, job, event_who(event), &tuned);
        jobs_take_version(core, job, &tuned);
    }
    reply_tuned(core, event, job, &tuned);
}

/* ---- the life of a job */

void jobs_started(struct core *core, struct job *job)
{
    struct generation *g = job_current(job);

    job->port_retries = job->node_retries = 0;
    g->began_ms = core->now.boot_ms;
    if (!job->r.started_ms) {
        job->r.started_ms = core->now.wall_ms;
        emit_job(core, job, CHANGE_JOB_PUT);
        notice_job(core, job, NOTICE_STARTED, "all ranks are running");
        if (job->spec.time_limit_ms) {
            job->limit_at = core->now.boot_ms + job->spec.time_limit_ms;
            core_wake(core, job->limit_at);
        }
    }
    emit_generation_move(core, g, GENERATION_RUNNING, "all ranks are running");
    emit_job_move(core, job, JOB_RUNNING, "all ranks are running");
    if (job->r.fault_ms && job->r.fault_step == 0)
        fault_close(core, job); /* there was no step to come back to */
}

/* A stop that was not obeyed in time gets harder. The supervisor itself follows SIGTERM by SIGKILL after the
 * grace, so CORE_STOP_KILL is for supervisors that do not. */
static void harden_stop(struct core *core, struct generation *g)
{
    if (g->stop == CORE_STOP_NONE || g->stop == CORE_STOP_SNAPSHOT)
        generation_stop_spawns(core, g, CORE_STOP_TERM);
    else if (g->stop == CORE_STOP_TERM)
        generation_stop_spawns(core, g, CORE_STOP_KILL);
    else
        stall_release(core, g);
}

void jobs_tick(struct core *core, struct job *job)
{
    int64_t now = core->now.boot_ms;

    for (size_t i = 0; i < job->generation_count; i++)
        if (job->generations[i]->stop_at && now >= job->generations[i]->stop_at)
            harden_stop(core, job->generations[i]);
    if (job_finished(job))
        return;
    if (job->limit_at && now >= job->limit_at) {
        char why[64];
        snprintf(why, sizeof(why), "time limit of %" PRId64 " s", job->spec.time_limit_ms / 1000);
        job->limit_at = 0;
        /* a job that is stopping keeps its reason */
        if (job->r.state != JOB_STOPPING)
            job_stop(core, job, JOB_FAILED, 125, false, why);
    }
    if (job->not_before && now >= job->not_before) {
        job->not_before = 0;
        job->held = false;
        core_capacity_changed(core);
    }
    if (job->survivors_until && now >= job->survivors_until) {
        job->survivors_until = 0; /* if they still wait, the next placement pass gives them up */
        core_capacity_changed(core);
    }
    if (job->gpu_news_until && now >= job->gpu_news_until) {
        job->gpu_news_until = 0;
        job_settle(core, job);
    }
    if (job->grow.at && now >= job->grow.at)
        core_capacity_changed(core);
}

static int64_t earlier_deadline(int64_t a, int64_t b)
{
    return b > 0 && b < a ? b : a;
}

int64_t jobs_deadline(const struct job *job)
{
    int64_t at = INT64_MAX;

    for (size_t i = 0; i < job->generation_count; i++)
        at = earlier_deadline(at, job->generations[i]->stop_at);
    if (job_finished(job))
        return at;
    at = earlier_deadline(earlier_deadline(earlier_deadline(at, job->limit_at), job->not_before),
                          job->grow.at);
    return earlier_deadline(earlier_deadline(at, job->survivors_until), job->gpu_news_until);
}

static int compare_times(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Returns the time when the oldest of the retain_jobs newest ended jobs ended. Age counts from the end: a
 * long job that ends now is new. */
static int64_t oldest_end_kept(const struct core *core)
{
    int64_t *ends = xcalloc(core->job_count + 1, sizeof(*ends)), oldest = INT64_MIN;
    size_t count = 0, keep = (size_t)core->config.retain_jobs;

    for (size_t i = 0; i < core->job_count; i++)
        if (job_finished(core->jobs[i]))
            ends[count++] = core->jobs[i]->r.ended_ms;
    if (count > keep) {
        qsort(ends, count, sizeof(*ends), compare_times);
        oldest = keep ? ends[count - keep] : INT64_MAX;
    }
    free(ends);
    return oldest;
}

static bool job_is_expired(const struct core *core, const struct job *job, int64_t oldest)
{
    const bool old = core->now.wall_ms - job->r.ended_ms >= core->config.retain_jobs_ms &&
                     !clock_doubt_holds(core, core->now);

    return job_finished(job) && (old || job->r.ended_ms < oldest);
}

bool jobs_needed_by(const struct core *core, const struct job *job, struct buf *why)
{
    /* a worker that may live on a lost node still holds its slot there */
    for (size_t i = 0; i < job->spawn_count; i++)
        if (!job->spawns[i]->r.dead) {
            if (why)
                buf_printf(why, "one of its workers on %s may still run", job->spawns[i]->r.node);
            return true;
        }
    /* a job that continues this one needs its snapshots */
    for (size_t i = 0; i < core->job_count; i++)
        if (core->jobs[i]->r.continues == job->r.id && !job_finished(core->jobs[i])) {
            if (why)
                buf_printf(why, "job %" PRId64 " continues from its snapshots", core->jobs[i]->r.id);
            return true;
        }
    return false;
}

void jobs_remove(struct core *core, struct job *job)
{
    emit_forget(core, job->r.id);
    card_removed(core, job->r.id);
    core_remove_job(core, job);
}

void jobs_retain(struct core *core)
{
    int64_t oldest = oldest_end_kept(core);

    clock_doubt_check(core);
    core->retain_at = core->now.boot_ms + RETAIN_EVERY_MS;
    for (size_t i = 0; i < core->job_count;) {
        if (!job_is_expired(core, core->jobs[i], oldest) || jobs_needed_by(core, core->jobs[i], NULL)) {
            i++;
            continue;
        }
        jobs_remove(core, core->jobs[i]);
    }
}
