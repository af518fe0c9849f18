#include "client/screen/screen_jobs.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "client/job_status.h"
#include "client/screen/screen_parts.h"
#include "client/text/format.h"
#include "client/text/table.h"

#define BAR_COLUMNS 100 /* narrower terminals get no progress bars */

enum {
    COL_JOB,
    COL_NAME,
    COL_STATE,
    COL_NODES,
    COL_PROGRESS,
    COL_LOSS,
    COL_VAL,
    COL_SPEED,
    COL_ETA,
    COL_USER,
    COL_AGE
};

static const struct table_column columns[] = {
    {"JOB", true},       {"NAME", false},    {"STATE", false},  {"NODES", false, 3},
    {"PROGRESS", false}, {"LOSS", false},    {"VAL", false, 2}, {"SPEED", false},
    {"ETA", false},      {"USER", false, 1}, {"AGE", true},
};

static const char *jobs_text(const struct buf *b)
{
    return b->data ? b->data : "";
}

static void jobs_nodes_cell(const Ddp__V1__JobStatus *job, struct buf *out)
{
    if (job->n_nodes == 0)
        buf_puts(out, job->asks);
    for (size_t i = 0; i < job->n_nodes && i < 3; i++)
        buf_printf(out, "%s%s", i ? "+" : "", job->nodes[i]);
    if (job->n_nodes > 3)
        buf_printf(out, "+%zu more", job->n_nodes - 3);
}

static void jobs_progress_cell(const Ddp__V1__JobStatus *job, const struct term *term, struct buf *out)
{
    double fraction = job_status_fraction(job);
    if (!job->progress || (job->progress->step == 0 && fraction < 0))
        return;
    if (fraction < 0 || strcmp(job->state, "failed") == 0) {
        buf_printf(out, "step %s", text_count(job->progress->step).text);
        return;
    }
    if (term->live && term->columns >= BAR_COLUMNS)
        buf_printf(out, "%s ", fmt_bar(fraction, 9).text);
    buf_printf(out, "%d%% %s", (int)(fraction * 100), text_short((double)job->progress->step).text);
}

/* The first failing rank's message or last line on stderr; NULL: neither explains the failure, as when it was
 * killed by a signal. */
static const char *jobs_last_words(const Ddp__V1__Failure *f)
{
    if (!f || !*f->node || f->signal || !f->code)
        return NULL;
    if (*f->message)
        return f->message;
    const char *line = f->n_stderr_tail ? f->stderr_tail[f->n_stderr_tail - 1] : "";
    int rank, end = 0;
    line += strspn(line, " \t");
    if (sscanf(line, "ddp-trainer: rank %d: %n", &rank, &end) == 1)
        line += end;
    return *line ? line : NULL;
}

/* "rank 1 on box1: ValueError: no such shard" if more is known than the exit code; otherwise the job's
 * reason. */
static void jobs_reason_cell(const Ddp__V1__JobStatus *job, struct buf *out)
{
    const bool ran = strcmp(job->state, "failed") == 0 && !strstr(job->reason, " could not start on ");
    const char *words = ran ? jobs_last_words(job->failure) : NULL;
    if (words)
        buf_printf(out, "rank %d on %s: %s", job->failure->rank, job->failure->node, words);
    else
        buf_puts(out, job->reason);
}

/* A job that waits or has failed has no loss and no speed: its reason is written across those columns. */
static void jobs_middle_cells(struct table *t, const Ddp__V1__JobStatus *job, const struct term *term)
{
    CLEANUP(buf_release) struct buf progress = {0}, val = {0}, speed = {0}, reason = {0};
    double loss;
    jobs_progress_cell(job, term, &progress);
    if (*job->reason && !job_status_succeeded(job) && strcmp(job->state, "running") != 0) {
        if (progress.len)
            table_cell(t, STYLE_NONE, progress.data);
        jobs_reason_cell(job, &reason);
        table_span(t, progress.len ? COL_USER - COL_LOSS : COL_USER - COL_PROGRESS, STYLE_NONE, reason.data);
        return;
    }
    table_cell(t, STYLE_NONE, jobs_text(&progress));
    table_cell(t, STYLE_NONE, job_status_metric(job, "loss", &loss) ? fmt_metric(loss).text : "");
    screen_validation(job, &val);
    table_cell(t, STYLE_NONE, jobs_text(&val));
    if (!job_status_ended(job))
        screen_speed(job, &speed);
    table_cell(t, STYLE_NONE, jobs_text(&speed));
    int64_t eta = job_status_ended(job) ? -1 : job_status_eta_ms(job);
    table_cell(t, STYLE_NONE, eta >= 0 ? text_duration(eta).text : "");
}

static void jobs_job_row(struct table *t, const Ddp__V1__JobStatus *job, const struct term *term)
{
    CLEANUP(buf_release) struct buf nodes = {0};
    jobs_nodes_cell(job, &nodes);
    table_cell(t, STYLE_NONE, text_count(job->job).text);
    table_cell(t, STYLE_NONE, job->name);
    table_cell(t, style_of_state(job->state), job->state);
    table_cell(t, STYLE_NONE, jobs_text(&nodes));
    jobs_middle_cells(t, job, term);
    table_cell(t, STYLE_NONE, job->user);
    table_cell(t, STYLE_NONE, text_age(term->now_ms - job->created_ms).text);
    table_end_row(t);
}

static void jobs_put_totals(const Ddp__V1__ListJobsReply *r, struct buf *out)
{
    const char *unit = r->gpus ? "GPU" : "CPU slot";
    int all = r->gpus ? r->gpus : r->slots, busy = r->gpus ? r->gpus_busy : r->slots_busy;
    int left = r->gpus ? r->gpus_free : all - busy;
    buf_printf(out, "%s, %s: %d busy, %d free", text_counted(r->nodes, "node").text,
               text_counted(all, unit).text, busy, left);
    for (size_t i = 0; i < r->n_gpus_sick; i++) {
        if (i)
            buf_puts(out, ", ");
        else
            buf_printf(out, ", %zu sick (", r->n_gpus_sick);
        term_puts_safe(out, r->gpus_sick[i]);
    }
    buf_puts(out, r->n_gpus_sick ? ")\n" : "\n");
    for (size_t i = 0; i < r->n_notes; i++) {
        buf_puts(out, "NOTE: ");
        term_puts_safe(out, r->notes[i]);
        buf_putc(out, '\n');
    }
}

static void jobs_put_notes(const Ddp__V1__JobStatus *job, const struct term *term, struct buf *out)
{
    for (size_t i = 0; i < job->n_notes; i++) {
        CLEANUP(buf_release) struct buf note = {0};
        buf_printf(&note, "NOTE: #%lld: ", (long long)job->job);
        term_puts_safe(&note, job->notes[i]);
        term_puts(term, out, STYLE_BAD, note.data);
        buf_putc(out, '\n');
    }
}

void screen_jobs(const Ddp__V1__ListJobsReply *reply, const struct term *term, struct buf *out)
{
    CLEANUP(table_release) struct table *t = table_new(columns, ARRAY_LEN(columns));
    for (size_t i = 0; i < reply->n_jobs; i++)
        jobs_job_row(t, reply->jobs[i], term);
    table_print(t, term, out);
    for (size_t i = 0; i < reply->n_jobs; i++)
        jobs_put_notes(reply->jobs[i], term, out);
    jobs_put_totals(reply, out);
}
