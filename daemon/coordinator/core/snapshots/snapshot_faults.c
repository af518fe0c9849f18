/* Failing snapshots do not end a job, and nobody would look for them in a rank's stderr. So the first failure
 * on a node is an event, the next success is an event, and the job's status has a note in between. This is
 * kept in memory only, because the worker reports each failure. A worker that cannot reach the coordinator
 * reports no failure, so a job that reports steps but commits nothing for two intervals also has an event and
 * a note. */
#include "daemon/coordinator/core/snapshots/snapshot_faults.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/rendezvous.h"
#include "daemon/coordinator/core/snapshots/pending_parts.h"
#include "daemon/coordinator/core/snapshots/snapshots.h"

#define WHY_CHARS 400
/* How long a snapshot may be overdue before it is reported. */
#define OVERDUE_AWAY_MS                                                                                      \
    10000 /* if ranks cannot reach the coordinator: not less, because its restart takes a while */
#define OVERDUE_SLOW_MS 60000 /* if all ranks can reach it: large snapshots take longer to write */

static struct snapshot_fault *find_fault(const struct job *job, const char *node)
{
    for (size_t i = 0; i < job->snapshot_fault_count; i++)
        if (!strcmp(job->snapshot_faults[i].node, node))
            return &job->snapshot_faults[i];
    return NULL;
}

static void drop_fault(struct job *job, struct snapshot_fault *fault)
{
    free(fault->node);
    free(fault->why);
    *fault = job->snapshot_faults[--job->snapshot_fault_count];
    job->changed = true;
}

static struct snapshot_fault *add_fault(struct core *core, struct job *job, const struct spawn *s)
{
    job->snapshot_faults = array_grow(job->snapshot_faults, job->snapshot_fault_count,
                                      &job->snapshot_fault_cap, sizeof(*job->snapshot_faults));
    struct snapshot_fault *fault = &job->snapshot_faults[job->snapshot_fault_count++];
    *fault = (struct snapshot_fault){
        .node = xstrdup(s->r.node), .rank = s->rank->r.rank, .step = -1, .since_ms = core->now.wall_ms};
    return fault;
}

/* The rank has finished the run, and keeps its state while it tries again. A person who frees the resource in time, for example
 * space on the disk, saves it. The reason says which resource it is. */
static void fault_waits(struct core *core, struct job *job, struct snapshot_fault *fault, int64_t waits_ms)
{
    const bool first = !fault->waits_until;

    fault->waits_until = core->now.boot_ms + waits_ms;
    if (first)
        emit_event(
            core, job, "snapshot_waits",
            "rank %d on %s cannot write the last snapshot, of step %s, and tries again for up to %s: %s",
            fault->rank, fault->node, text_count(fault->step).text, text_duration(waits_ms).text, fault->why);
}

void snapshot_faults_failed(struct core *core, const struct core_event *event)
{
    struct job *job = core_find_job(core, event->member.job);
    struct spawn *s = job ? job_find_spawn(job, event->member.spawn) : NULL;
    int64_t step = event->snapshot.step;

    if (!s || !spawn_is_member(s)) {
        emit_fail(core, event->call, ERR_ABORTED,
                  "spawn %" PRId64 " of job %" PRId64 " is no longer a member", event->member.spawn,
                  event->member.job);
        return;
    }
    const int64_t waits_ms = event->snapshot.waits_ms > 0 ? event->snapshot.waits_ms : 0;
    if (!waits_ms) /* else the others wait with it */
        pending_parts_failed(job, s, step);
    struct snapshot_fault *fault = find_fault(job, s->r.node);
    bool first = !fault;
    if (first)
        fault = add_fault(core, job, s);
    if (fault->spawn != s->r.spawn || fault->step != step) /* else the call is repeated */
        fault->count++;
    fault->spawn = s->r.spawn;
    fault->rank = s->rank->r.rank;
    fault->step = step;
    text_set(&fault->why, "%.*s", WHY_CHARS, event->snapshot.why ? event->snapshot.why : "");
    job->changed = true;
    if (waits_ms)
        fault_waits(core, job, fault, waits_ms);
    else
        fault->waits_until = 0;
    if (first && !waits_ms)
        emit_event(core, job, "snapshot_failed", "rank %d on %s could not write the snapshot of step %s: %s",
                   fault->rank, fault->node, text_count(step).text, fault->why);
    emit_ok(core, event->call);
}

/* ---- a job that makes steps and commits no snapshot */

static bool intervals_over(const struct core *core, const struct job *job)
{
    const struct job_every *every = &job->spec.train.snapshot.every;

    switch (every->unit) {
    case EVERY_STEPS:
        return job->progress.step - job->saved.step > 2 * every->count;
    case EVERY_EPOCHS:
        return job->progress.epoch - job->saved.epoch > 2.0 * (double)every->count;
    default:
        return core->now.boot_ms - job->saved.boot_ms > 2 * every->count;
    }
}

static void set_saved(const struct core *core, struct job *job, const struct generation *g, int64_t step)
{
    job->saved.generation = g->r.number;
    job->saved.step = step;
    job->saved.epoch = job->progress.epoch;
    job->saved.boot_ms = core->now.boot_ms;
    job->saved.overdue = false;
}

/* Begins to count for this generation. After a restart of the coordinator that is at the first report. */
static void init_saved(const struct core *core, struct job *job, const struct generation *g)
{
    const struct snapshot_record *newest = snapshots_newest(job);

    if (newest && newest->generation == g->r.number)
        set_saved(core, job, g, newest->step);
    else
        set_saved(core, job, g, g->r.source_rank >= 0 ? g->r.source_step : 0);
}

/* "job 3 has not been able to save since step 1,200 (2m05s): 2 of its 2 ranks cannot reach the coordinator"
 */
static char *describe_overdue(const struct core *core, const struct job *job, const struct generation *g)
{
    int away = g->r.world_size - rendezvous_watching(core, g);
    CLEANUP(buf_release) struct buf text = {0};

    buf_printf(&text, "job %" PRId64 " has not been able to save since step %s (%s): ", job->r.id,
               text_count(job->saved.step).text, text_duration(core->now.boot_ms - job->saved.boot_ms).text);
    if (away)
        buf_printf(&text, "%d of its %d ranks cannot reach the coordinator", away, g->r.world_size);
    else
        buf_printf(&text, "no snapshot was committed in more than two intervals; `ddpctl logs %" PRId64 "`",
                   job->r.id);
    return buf_steal(&text);
}

void snapshot_faults_stepped(struct core *core, struct job *job)
{
    const struct generation *g = job_current(job);

    if (job->spec.kind != JOB_TRAIN || !job->spec.train.snapshot.dir || !job->spec.train.snapshot.every.count)
        return;
    if (job->saved.generation != g->r.number)
        init_saved(core, job, g);
    /* a failure that was reported says more than this would */
    if (job->saved.overdue || job->snapshot_fault_count || !intervals_over(core, job))
        return;
    bool away = rendezvous_watching(core, g) < g->r.world_size;
    if (core->now.boot_ms - job->saved.boot_ms < (away ? OVERDUE_AWAY_MS : OVERDUE_SLOW_MS))
        return;
    CLEANUP(free_text) char *text = describe_overdue(core, job, g);
    job->saved.overdue = job->changed = true;
    emit_event(core, job, "job_unsaved", "%s", text);
}

static void note_saved(struct core *core, struct job *job, const struct generation *g, int64_t step)
{
    if (job->saved.overdue) {
        emit_event(core, job, "job_saved_again", "step %s is saved, after %s without a snapshot",
                   text_count(step).text, text_duration(core->now.boot_ms - job->saved.boot_ms).text);
        job->changed = true;
    }
    set_saved(core, job, g, step);
}

/* ---- commits and generations */

void snapshot_faults_committed(struct core *core, const struct spawn *s, int64_t step)
{
    struct job *job = s->job;
    struct snapshot_fault *fault = find_fault(job, s->r.node);

    note_saved(core, job, s->rank->generation, step);

    if (job->went_back) {
        free(steal(job->went_back));
        job->changed = true;
    }
    if (!fault)
        return;
    emit_event(core, job, "snapshot_works", "rank %d on %s writes snapshots again: step %s, after %s in %s",
               s->rank->r.rank, s->r.node, text_count(step).text, text_counted(fault->count, "failure").text,
               text_duration(core->now.wall_ms - fault->since_ms).text);
    drop_fault(job, fault);
}

void snapshot_faults_formed(struct job *job)
{
    const struct generation *g = job_current(job);

    job->saved.overdue = false;
    for (size_t i = 0; i < job->snapshot_fault_count; i++) /* a rank that still waits says so again */
        job->snapshot_faults[i].waits_until = 0;
    for (size_t i = job->snapshot_fault_count; i-- > 0;) {
        bool member = false;
        for (int rank = 0; rank < g->r.world_size; rank++)
            member |= !strcmp(g->ranks[rank].r.node, job->snapshot_faults[i].node);
        if (!member)
            drop_fault(job, &job->snapshot_faults[i]);
    }
}

void snapshot_faults_notes(const struct core *core, const struct job *job, struct core_job_status *out)
{
    const struct generation *g = job_current(job);

    if (job_finished(job))
        return;
    if (job->saved.overdue && g && generation_open(g)) {
        CLEANUP(free_text) char *note = describe_overdue(core, job, g);
        out->notes = strv_append(out->notes, note);
    }
    for (size_t i = 0; i < job->snapshot_fault_count; i++) {
        const struct snapshot_fault *f = &job->snapshot_faults[i];
        CLEANUP(free_text)
        char *note = NULL;
        if (f->waits_until)
            note = xasprintf(
                "rank %d on %s cannot write the last snapshot, of step %s, and tries again for another %s: %s",
                f->rank, f->node, text_count(f->step).text,
                text_duration(f->waits_until - core->now.boot_ms).text, f->why);
        else
            note = xasprintf("rank %d on %s cannot write snapshots since %s (%s, the last at step %s): %s",
                             f->rank, f->node, text_clock(f->since_ms, core->now.wall_ms, false).text,
                             text_counted(f->count, "failure").text, text_count(f->step).text, f->why);
        out->notes = strv_append(out->notes, note);
        if (out->unsaved &&
            !f->waits_until) /* a wait ends soon, so it comes before failures of other nodes */
            continue;
        out->unsaved = out->notes[strv_len(out->notes) - 1];
        out->waits_for_space = f->waits_until != 0;
    }
    if (job->went_back)
        out->notes = strv_append(out->notes, job->went_back);
}
