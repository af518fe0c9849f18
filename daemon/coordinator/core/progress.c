/* Keeps a job's progress in its record, so that a restarted coordinator can still show it. It is written when
 * the job ends, with each change of its record, when the coordinator ends, and every half minute for all jobs
 * with news. So a report costs no commit of its own. */
#include "daemon/coordinator/core/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/model.h"

#define KEEP_MS 30000
#define TEXT_MOST (64 << 10)

static void print_metrics(struct jout *out, const struct job *job)
{
    const struct core_progress *p = &job->progress;

    jout_open(out, "metrics", '[');
    for (size_t i = 0; i < p->metric_count; i++) {
        jout_open(out, NULL, '{');
        jout_text(out, "name", p->metrics[i].name);
        jout_real(out, "value", p->metrics[i].value); /* null when it is not finite */
        jout_int(out, "rank", job->metric_rank[i]);
        jout_bool(out, "own", job->metric_own[i]);
        jout_close(out, '}');
    }
    jout_close(out, ']');
    jout_open(out, "loss", '[');
    for (size_t i = 0; i < p->loss_count; i++)
        jout_real(out, NULL, p->loss_history[i]);
    jout_close(out, ']');
}

void progress_keep(struct job *job)
{
    const struct core_progress *p = &job->progress;
    struct buf text = {0};
    struct jout out = {.buf = &text};

    job->progress_due = false;
    if (!p->updated_ms)
        return; /* it never reported anything */
    jout_open(&out, NULL, '{');
    jout_int(&out, "step", p->step);
    jout_int(&out, "generation", job->stepped_in);
    jout_int(&out, "steps", p->steps);
    jout_int(&out, "updated_ms", p->updated_ms);
    jout_real(&out, "epoch", p->epoch);
    if (p->has_best_val) {
        jout_real(&out, "best_val", p->best_val);
        jout_int(&out, "best_val_step", p->best_val_step);
    }
    jout_int(&out, "loss_stride", job->loss_stride);
    if (*p->captured)
        jout_text(&out, "captured", p->captured);
    print_metrics(&out, job);
    jout_close(&out, '}');
    free(job->r.progress);
    job->r.progress = buf_steal(&text);
}

static void load_metrics(struct job *job, const json_t *list)
{
    struct core_progress *p = &job->progress;

    for (size_t i = 0; i < json_array_size(list) && p->metric_count < CORE_METRICS; i++) {
        const json_t *item = json_array_get(list, i);
        const char *name = json_get_text(item, "name", "");
        if (!*name || strlen(name) >= sizeof(p->metrics[0].name))
            continue;
        snprintf(p->metrics[p->metric_count].name, sizeof(p->metrics[0].name), "%s", name);
        p->metrics[p->metric_count].value = json_get_real(item, "value", NAN);
        job->metric_own[p->metric_count] = json_get_bool(item, "own", false);
        job->metric_rank[p->metric_count++] = (int)json_get_int(item, "rank", 0);
    }
}

/* The last reports before a crash may be missing, but not the state with which the generation began, nor its snapshots. */
static int64_t recorded_step(const struct job *job)
{
    const struct generation *g = job_current(job);
    int64_t step = g && g->r.source_rank >= 0 ? g->r.source_step : 0;

    for (size_t i = 0; g && i < job->snapshot_count; i++)
        if (job->snapshots[i].generation == g->r.number && job->snapshots[i].step > step)
            step = job->snapshots[i].step;
    return step;
}

/* Values that cannot be read are left out. If the job runs, the next reports bring them again. */
static void load_kept(struct job *job)
{
    CLEANUP(json_release) json_t *text = NULL;
    struct core_progress *p = &job->progress;
    struct err e;

    if (!job->r.progress ||
        json_parse(job->r.progress, strlen(job->r.progress), TEXT_MOST, &text, &e) != ERR_OK)
        return;
    p->step = json_get_int(text, "step", 0);
    job->stepped_in = json_get_int(text, "generation", 0);
    p->steps = json_get_int(text, "steps", p->steps);
    p->updated_ms = json_get_int(text, "updated_ms", 0);
    p->epoch = json_get_real(text, "epoch", 0);
    p->has_best_val = json_object_get(text, "best_val") != NULL;
    p->best_val = json_get_real(text, "best_val", 0);
    p->best_val_step = json_get_int(text, "best_val_step", 0);
    job->loss_stride = (int)json_get_int(text, "loss_stride", 1);
    snprintf(p->captured, sizeof(p->captured), "%s", json_get_text(text, "captured", ""));
    load_metrics(job, json_object_get(text, "metrics"));
    const json_t *loss = json_object_get(text, "loss");
    for (size_t i = 0; i < json_array_size(loss) && p->loss_count < CORE_LOSS_HISTORY; i++)
        p->loss_history[p->loss_count++] = json_number_value(json_array_get(loss, i));
}

void progress_load(struct job *job)
{
    load_kept(job);
    const int64_t recorded = recorded_step(job);
    if (recorded > job->progress.step)
        job->progress.step = recorded;
}

void progress_news(struct core *core, struct job *job)
{
    job->progress_due = true;
    if (core->progress_at)
        return;
    core->progress_at = core->now.boot_ms + KEEP_MS;
    core_wake(core, core->progress_at);
}

void progress_tick(struct core *core)
{
    core->progress_at = 0;
    for (size_t i = 0; i < core->job_count; i++) {
        struct job *job = core->jobs[i];
        if (!job->progress_due || job_finished(job))
            continue;
        progress_keep(job);
        emit_progress(core, job);
    }
}
