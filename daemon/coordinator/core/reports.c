/* Keeps the last values that workers report, for status. progress.c makes them durable from time to time. */
#include "daemon/coordinator/core/reports.h"

#include <math.h>
#include <string.h>

#include "base/job/sync_choice.h"
#include "base/mem.h"
#include "daemon/coordinator/core/curves.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/failure/fault_cost.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/progress.h"
#include "daemon/coordinator/core/snapshots/snapshot_faults.h"

static void keep_loss(struct job *job, double loss)
{
    struct core_progress *p = &job->progress;

    if (!isfinite(loss))
        return;
    if (job->loss_stride == 0)
        job->loss_stride = 1;
    if (++job->loss_skip < job->loss_stride)
        return;
    job->loss_skip = 0;
    if (p->loss_count == CORE_LOSS_HISTORY) { /* the whole run stays in view, at half the detail */
        for (size_t i = 0; i < CORE_LOSS_HISTORY / 2; i++)
            p->loss_history[i] = p->loss_history[2 * i];
        p->loss_count = CORE_LOSS_HISTORY / 2;
        job->loss_stride *= 2;
    }
    p->loss_history[p->loss_count++] = loss;
}

static void keep_best(struct core_progress *p, const char *name, double value)
{
    if (strcmp(name, "val_loss") != 0 || !isfinite(value) || (p->has_best_val && value >= p->best_val))
        return;
    p->has_best_val = true;
    p->best_val = value;
    p->best_val_step = p->step;
}

/* Its place, or metric_count. */
static size_t metric_index(const struct core_progress *p, const char *name)
{
    size_t i = 0;

    while (i < p->metric_count && strcmp(p->metrics[i].name, name) != 0)
        i++;
    return i;
}

/* A program that begins to report may have reported before in an earlier generation. Then what it prints until its first
 * report must not go into the same curve, with steps that it may count differently. */
static void leave_out_own(const struct job *job, struct metric_line *captured)
{
    size_t kept = 0;

    for (size_t i = 0; i < captured->count; i++) {
        const size_t at = metric_index(&job->progress, captured->metrics[i].name);
        if (at == job->progress.metric_count || !job->metric_own[at])
            captured->metrics[kept++] = captured->metrics[i];
    }
    captured->has_step = captured->has_step && kept == captured->count;
    captured->count = kept;
}

/* A metric of the job is that of the lowest rank that reports it. */
static void keep_metric(struct job *job, int rank, const struct metric *metric, bool own)
{
    struct core_progress *p = &job->progress;
    const char *name = metric->name;
    const double value = metric->value;
    const size_t i = metric_index(p, name);

    if (i == p->metric_count) {
        if (i == CORE_METRICS)
            return;
        p->metrics[i] = *metric;
        job->metric_rank[i] = rank;
        job->metric_own[i] = false;
        p->metric_count++;
    }
    job->metric_own[i] = job->metric_own[i] || own;
    if (rank > job->metric_rank[i])
        return; /* a lower rank reports this metric too */
    job->metric_rank[i] = rank;
    p->metrics[i].value = value;
    if (!strcmp(name, "loss"))
        keep_loss(job, value);
    else if (!strcmp(name, "epoch"))
        p->epoch = value;
    else if (!strcmp(name, "steps") && value >= 1 && value < 1e18)
        p->steps = (int64_t)value;
    keep_best(p, name, value);
}

static void keep_rank(struct spawn *s, const char *name, double value)
{
    if (!strcmp(name, "ms_per_step"))
        s->ms_per_step = value;
    else if (!strcmp(name, "wait_ms"))
        s->wait_ms = value;
    else if (!strcmp(name, "memory_bytes") && value >= 0 && value < 1e18)
        s->memory_bytes = (int64_t)value;
    else if (!strcmp(name, "balance_samples") && value >= 0 && value < 1e18)
        s->samples = (int64_t)value;
    else if (!strcmp(name, "balance_ms"))
        s->sample_ms = value;
}

/* Steps per second, from reports that are at least half a second apart. */
static void keep_pace(struct core_progress *p, int64_t now_ms)
{
    const int64_t steps = p->step - p->pace_step, ms = now_ms - p->pace_ms;

    if (p->pace_ms && steps > 0 && ms < 500)
        return;
    if (p->pace_ms && steps > 0) {
        const double pace = (double)steps * 1000 / (double)ms;
        p->steps_per_s = p->steps_per_s > 0 ? 0.7 * p->steps_per_s + 0.3 * pace : pace;
    }
    if (!p->pace_ms || steps != 0) {
        p->pace_step = p->step;
        p->pace_ms = now_ms;
    }
}

/* The job's step is the largest step that a rank has reported. The first report of a new generation of a command may also
 * lower it, because only the command knows at which step it continued. The first report after a restart of the coordinator
 * must not lower it if the generation is still the same: another rank may have reported a larger step before. */
static void keep_step(struct core *core, struct spawn *s, int64_t step)
{
    struct job *job = s->job;
    bool first = !job->pace.boot_ms;

    if (s->step > 0 && step > s->step)
        job->pace.gap = step - s->step;
    s->step = step;
    bool begins = job->stepped_in != job->r.generation;
    if (step > job->progress.step || (begins && job->spec.kind == JOB_COMMAND))
        job->progress.step = step;
    job->stepped_in = job->r.generation;
    if (first) {
        job->pace.boot_ms = core->now.boot_ms;
        job->pace.step = job->progress.step;
        job->pace.from = step > job->pace.gap ? step - job->pace.gap : 0;
    }
    keep_pace(&job->progress, core->now.boot_ms);
}

/* The trainer of rank 0 reports its choice once in each generation. */
static void tell_choice(struct core *core, const struct job *job, const struct metric_line *line)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct sync_facts facts;
    struct sync_spec chosen;

    if (job->spec.kind != JOB_TRAIN || job->spec.train.sync.type != SYNC_AUTO ||
        !sync_choice_get(line, &facts, &chosen))
        return;
    sync_print_choice(&text, &facts, &chosen);
    emit_event(core, job, "sync_chosen", "%s", text.data);
}

static void take_report(struct core *core, struct spawn *s, const struct metric_report *taken)
{
    struct metric_line others;
    struct metric_report filtered = *taken;
    const struct metric_report *report = &filtered;
    struct job *job = s->job;
    struct rank *rank = s->rank;

    if (taken->captured) {
        others = *taken->line;
        leave_out_own(job, &others);
        filtered.line = &others;
    }
    const struct metric_line *line = report->line;
    if (line->has_step)
        keep_step(core, s, line->step);
    s->report_ms = core->now.boot_ms;
    job->progress.updated_ms = core->now.wall_ms;
    job->changed = true;
    progress_news(core, job);
    for (size_t i = 0; i < line->count; i++) {
        keep_metric(job, rank->r.rank, &line->metrics[i], !report->captured);
        keep_rank(s, line->metrics[i].name, line->metrics[i].value);
    }
    curves_take(core, job, rank, report);
    if (rank->r.rank == 0)
        tell_choice(core, job, line);
    if (rank->generation->r.state != GENERATION_RUNNING)
        return;
    if (line->has_step && (rank->r.state == RANK_JOINED || rank->r.state == RANK_SPAWNED))
        emit_rank_move(core, rank, RANK_TRAINING);
    if (job->r.fault_ms && line->has_step && line->step >= job->r.fault_step)
        fault_close(core, job);
    if (line->has_step)
        snapshot_faults_stepped(core, job);
}

void reports_apply(struct core *core, struct node *node, const struct core_event *event)
{
    for (size_t i = 0; i < event->reports.count; i++) {
        const struct metric_report *report = &event->reports.reports[i];
        struct job *job = core_find_job(core, report->job);
        struct spawn *s = job ? job_find_spawn(job, report->spawn) : NULL;
        if (s && s->node == node && spawn_is_member(s))
            take_report(core, s, report);
    }
}
