#include "daemon/coordinator/core/curves.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/job/job_sync.h"
#include "base/mem.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/status.h"

#define NOTES_MOST 16 /* events of a job while the coordinator runs: the notes come from a node */

static bool loss_is_same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b;
}

static char *still_text(const struct job *job)
{
    const int64_t step = job->still.from_step, steps = job->still.last_step - step;

    if (isnan(job->still.loss))
        return xasprintf(
            "nothing is learned: the loss has not been a number since step %" PRId64 ", for %" PRId64
            " steps; lower the learning rate, clip the gradients, or look for such values in the data",
            step, steps);
    if (job->still.loss == 0)
        return xasprintf("nothing is learned: the loss has been 0 since step %" PRId64 ", for %" PRId64
                         " steps; look at the labels, and at what the loss is computed from",
                         step, steps);
    return xasprintf(
        "nothing is learned: the loss has been %.6g since step %" PRId64 ", for %" PRId64
        " steps; look at the learning rate, and whether the optimizer gets the parameters and their gradients",
        job->still.loss, step, steps);
}

/* Many different losses are printed as "0.03". Zero does not count as rounded, because a broken run prints it, too. */
static bool loss_has_few_digits(double loss)
{
    char text[32];

    snprintf(text, sizeof(text), "%.2g", loss);
    return loss != 0 && strtod(text, NULL) == loss;
}

/* Whether the loss has been the same for so long that nothing is learned. */
static bool loss_is_still(const struct job *job, bool captured)
{
    const int64_t times = captured && !isnan(job->still.loss) ? CURVES_CAPTURED_TIMES : 1;

    if (captured && loss_has_few_digits(job->still.loss))
        return false;
    return job->still.reports >= times * CURVES_STILL_REPORTS &&
           job->still.last_step - job->still.from_step >= times * CURVES_STILL_STEPS;
}

/* The loss of the lowest rank that reports one. */
static void loss_watch(struct core *core, struct job *job, double loss, int64_t step, bool captured)
{
    const bool same =
        job->still.reports && loss_is_same(loss, job->still.loss) && step >= job->still.last_step;

    if (!same) {
        job->still.loss = loss;
        job->still.from_step = step;
        job->still.reports = 0;
        job->still.now = false;
    }
    if (!same || step > job->still.last_step)
        job->still.reports++;
    job->still.last_step = step;
    if (job->still.now || !loss_is_still(job, captured))
        return;
    job->still.now = true;
    if (job->still.told_in == job->r.generation)
        return;
    job->still.told_in = job->r.generation;
    CLEANUP(free_text) char *text = still_text(job);
    emit_event(core, job, "nothing_learned", "%s", text);
}

static int loss_rank(const struct job *job)
{
    for (size_t i = 0; i < job->progress.metric_count; i++)
        if (!strcmp(job->progress.metrics[i].name, "loss"))
            return job->metric_rank[i];
    return -1;
}

static void note_take(struct core *core, struct job *job, const char *note)
{
    job->capture_noted_in = job->r.generation;
    if (job->capture_note && !strcmp(job->capture_note, note))
        return;
    text_set(&job->capture_note, "%s", note);
    if (job->capture_notes++ < NOTES_MOST)
        emit_event(core, job, "capture", "%s", note);
}

static char *disagreement_text(const struct job *job)
{
    return xasprintf("the ranks' changes cancel out: "
                     "the agreement was below %g in the last %" PRId64 " rounds, and %.2g in the last one; "
                     "lower sync.every",
                     SYNC_LOW_AGREEMENT, job->disagreement.rounds, job->disagreement.last);
}

/* Whether the counted rounds are those of the present ranks, with the present values. */
static bool disagreement_counts(const struct job *job)
{
    return job->disagreement.generation == job->r.generation && job->disagreement.revision == job->r.revision;
}

/* Rank 0 reports each round once. The event is not repeated until a user has tuned the job: a run has thousands of rounds. */
static void agreement_watch(struct core *core, struct job *job, double agreement)
{
    if (isnan(agreement))
        return;
    if (!disagreement_counts(job))
        job->disagreement.rounds = 0;
    job->disagreement.generation = job->r.generation;
    job->disagreement.revision = job->r.revision;
    job->disagreement.last = agreement;
    job->disagreement.rounds = agreement < SYNC_LOW_AGREEMENT ? job->disagreement.rounds + 1 : 0;
    if (job->disagreement.rounds < SYNC_LOW_ROUNDS || job->disagreement.told_in == job->r.revision + 1)
        return;
    job->disagreement.told_in = job->r.revision + 1;
    CLEANUP(free_text) char *text = disagreement_text(job);
    emit_event(core, job, "low_agreement", "%s", text);
}

void curves_take(struct core *core, struct job *job, const struct rank *rank,
                 const struct metric_report *report)
{
    const struct metric_line *line = report->line;

    if (report->note)
        note_take(core, job, report->note);
    if (line->count && rank->r.rank == 0)
        snprintf(job->progress.captured, sizeof(job->progress.captured), "%s",
                 report->captured ? report->captured : "");
    for (size_t i = 0; i < line->count && job->spec.kind == JOB_TRAIN && rank->r.rank == 0; i++)
        if (!strcmp(line->metrics[i].name, "round_agreement"))
            agreement_watch(core, job, line->metrics[i].value);
    if (!line->has_step || line->step < 0 || rank->r.rank != loss_rank(job))
        return;
    for (size_t i = 0; i < line->count; i++)
        if (!strcmp(line->metrics[i].name, "loss"))
            loss_watch(core, job, line->metrics[i].value, line->step, report->captured);
}

void curves_notes(const struct job *job, struct core_job_status *out)
{
    if (job->still.now) {
        CLEANUP(free_text) char *text = still_text(job);
        out->notes = strv_append(out->notes, text);
    }
    if (job->disagreement.rounds >= SYNC_LOW_ROUNDS && disagreement_counts(job) &&
        job->r.state == JOB_RUNNING) {
        CLEANUP(free_text) char *text = disagreement_text(job);
        out->notes = strv_append(out->notes, text);
    }
    if (job->capture_note && job->capture_noted_in == job->r.generation)
        out->notes = strv_append(out->notes, job->capture_note);
}
