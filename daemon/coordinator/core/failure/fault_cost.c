#include "daemon/coordinator/core/failure/fault_cost.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/model.h"

/* If another fault comes before the job has recovered, both count as one: its time counts from the first
 * fault, and its step is the highest that was reached. */
void fault_open(struct core *core, struct job *job, bool charged, const char *text)
{
    if (!job->r.fault_ms) {
        job->fault_boot_ms = core->now.boot_ms;
        job->r.fault_ms = core->now.wall_ms;
    }
    if (job->progress.step > job->r.fault_step)
        job->r.fault_step = job->progress.step;
    /* The status line shows the last restart beside the number of restarts that count. A restart that does
     * not count must not take the place of one that does. */
    if (charged || !job->r.restarts_used) {
        text_set(&job->r.last_restart, "%.240s", text);
        job->r.last_restart_ms = core->now.wall_ms;
    }
    emit_job(core, job, CHANGE_JOB_PUT);
}

/* The step that the current generation started from. For a command it is estimated: its first report comes
 * one reporting interval after its start. */
static int64_t resumed_step(const struct job *job, const struct generation *g)
{
    if (job->spec.kind == JOB_TRAIN)
        return g->r.source_rank >= 0 ? g->r.source_step : 0;
    return job->pace.boot_ms ? job->pace.from : 0;
}

void fault_close(struct core *core, struct job *job)
{
    const struct generation *g = job_current(job);
    int64_t took = core->now.boot_ms - job->fault_boot_ms, step_then = job->r.fault_step;
    const int64_t from = resumed_step(job, g), lost = step_then - from;
    const struct text span = text_duration(took), redone = text_counted(lost, "step");

    /* Ranks report every few steps only. A state in memory, or a snapshot, can be newer than the last report. */
    if (step_then > 0 && from > step_then)
        step_then = from;
    if (step_then > 0)
        emit_event(core, job, "fault_cost", "back at step %s: %s redone (%s)", text_count(step_then).text,
                   lost > 0 ? redone.text : "no step", span.text);
    else
        emit_event(core, job, "fault_cost", "back after %s", span.text);
    if (job->r.last_restart_ms >= job->r.fault_ms) { /* else it names an earlier restart and its cost */
        CLEANUP(free_text) char *cause = steal(job->r.last_restart);
        job->r.last_restart = xasprintf("%s, cost %s", cause ? cause : "", span.text);
    }
    job->r.fault_ms = job->r.fault_step = 0;
    emit_job(core, job, CHANGE_JOB_PUT);
}
