#include "daemon/coordinator/core/job_orders.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/jobs.h"
#include "daemon/coordinator/core/model.h"

#define PRIORITY_MOST 1000 /* as in the job file */

static struct job *find_ordered_job(struct core *core, const struct core_event *event)
{
    struct job *job = core_find_job(core, event->order.job);

    if (!job)
        emit_fail(core, event->call, ERR_NOT_FOUND, "there is no job %" PRId64, event->order.job);
    return job;
}

/* Reads the job file into `version`. If it cannot be read, answers the call and returns false. */
static bool version_begin(struct core *core, const struct core_event *event, const struct job *job,
                          struct job_tuned *version)
{
    struct err e;

    *version = (struct job_tuned){0};
    if (job_parse(&version->spec, job->r.job_file, strlen(job->r.job_file), "job file", &e) == ERR_OK)
        return true;
    emit_fail(core, event->call, e.code, "%s", e.msg);
    job_tuned_release(version);
    return false;
}

static void version_commit(struct core *core, const struct core_event *event, struct job *job,
                           struct job_tuned *version)
{
    struct err e;

    version->text = job_print(&version->spec);
    if (jobs_check_size(version->text, job->r.env, &e)) {
        emit_fail(core, event->call, e.code, "%s", e.msg);
        job_tuned_release(version);
        return;
    }
    jobs_take_version(core, job, version);
    job_tuned_release(version);
    core_capacity_changed(core);
    emit_job_reply(core, event->call, job, false);
}

void job_orders_priority(struct core *core, const struct core_event *event)
{
    struct job *job = find_ordered_job(core, event);
    struct job_tuned version;

    if (!job)
        return;
    if (job_finished(job)) {
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION, "job %" PRId64 " has ended (%s)", job->r.id,
                  sm_name(&job_sm, job->r.state));
        return;
    }
    /* tested before the addition, which could overflow */
    if (event->order.relative &&
        (event->order.priority < -2 * PRIORITY_MOST || event->order.priority > 2 * PRIORITY_MOST)) {
        emit_fail(core, event->call, ERR_INVALID_ARGUMENT,
                  "priority: expected a change of at most %d, got %" PRId64, 2 * PRIORITY_MOST,
                  event->order.priority);
        return;
    }
    const int64_t old = job->spec.priority, new = event->order.priority + (event->order.relative ? old : 0);
    if (new < -PRIORITY_MOST || new > PRIORITY_MOST) {
        emit_fail(core, event->call, ERR_INVALID_ARGUMENT,
                  "priority: expected a number from -%d to %d, got %" PRId64, PRIORITY_MOST, PRIORITY_MOST,
                  new);
        return;
    }
    if (new == old) { /* also a call that is repeated because its reply was lost */
        emit_job_reply(core, event->call, job, true);
        return;
    }
    if (event->order.checked && event->order.seen != old) {
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION,
                  "the priority of job %" PRId64 " was changed meanwhile: it is %" PRId64 ", not %" PRId64,
                  job->r.id, old, event->order.seen);
        return;
    }
    if (!version_begin(core, event, job, &version))
        return;
    version.spec.priority = new;
    emit_event(core, job, "job_priority", "priority %" PRId64 " -> %" PRId64 " by %s", old, new,
               event_who(event));
    version_commit(core, event, job, &version);
}

void job_orders_hold(struct core *core, const struct core_event *event)
{
    struct job *job = find_ordered_job(core, event);
    struct job_tuned version;

    if (!job)
        return;
    if (job_finished(job)) {
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION, "job %" PRId64 " has ended (%s)", job->r.id,
                  sm_name(&job_sm, job->r.state));
        return;
    }
    if (job->spec.hold == event->order.hold) { /* a call may be repeated */
        emit_job_reply(core, event->call, job, true);
        return;
    }
    if (event->order.hold && job->r.state != JOB_QUEUED) {
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION,
                  "job %" PRId64
                  " is %s: only a queued job can be put on hold, `ddpctl cancel` stops this one",
                  job->r.id, sm_name(&job_sm, job->r.state));
        return;
    }
    if (!version_begin(core, event, job, &version))
        return;
    version.spec.hold = event->order.hold;
    emit_event(core, job, event->order.hold ? "job_held" : "job_released",
               event->order.hold ? "put on hold by %s" : "released by %s", event_who(event));
    if (!event->order.hold)
        free(steal(job->waits)); /* the next placement pass says what it waits for now */
    version_commit(core, event, job, &version);
}

/* Tells the job's nodes to remove its log files. stored: nodes according to the database. After a restart, memory has only
 * some generations of an ended job; but it has spawns that are not committed yet. Returns the names of the nodes that cannot be
 * told; strv_free. */
static char **delete_logs(struct core *core, const struct job *job, char *const *stored)
{
    const size_t stored_count = strv_len(stored);
    char **told = NULL, **left = NULL;

    for (size_t i = 0; i < stored_count + job->spawn_count; i++) {
        const char *name = i < stored_count ? stored[i] : job->spawns[i - stored_count]->r.node;
        const struct node *node = core_find_node(core, name);
        const bool connected = node && node->session;
        if (names_contain(told, name) || names_contain(left, name))
            continue;
        if (connected) {
            struct core_effect *effect = emit_effect(core, EFFECT_DELETE_LOGS);
            effect->session = node->session;
            effect->job = job->r.id;
            told = strv_append(told, name);
        } else {
            left = strv_append(left, name);
        }
    }
    strv_free(told);
    return left;
}

void job_orders_delete(struct core *core, const struct core_event *event)
{
    struct job *job = find_ordered_job(core, event);
    CLEANUP(buf_release) struct buf why = {0};

    if (!job)
        return;
    if (!job_finished(job)) {
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION,
                  "job %" PRId64 " is %s; cancel it first, and delete it once it has ended", job->r.id,
                  sm_name(&job_sm, job->r.state));
        return;
    }
    if (jobs_needed_by(core, job, &why)) {
        emit_fail(core, event->call, ERR_FAILED_PRECONDITION, "job %" PRId64 " cannot be deleted yet: %s",
                  job->r.id, why.data);
        return;
    }
    char **left = delete_logs(core, job, event->order.nodes);
    struct core_effect *reply = emit_effect(core, EFFECT_REPLY);
    reply->call = event->call;
    reply->job = job->r.id;
    reply->texts = left;
    emit_event(core, NULL, "job_deleted", "job %" PRId64 " '%.100s' was deleted by %s", job->r.id,
               job->r.name, event_who(event));
    jobs_remove(core, job);
}
