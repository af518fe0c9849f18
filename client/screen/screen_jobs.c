#include "client/screen/screen_jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "client/job_status.h"
#include "client/screen/screen_parts.h"
#include "client/text/format.h"
#include "client/text/table.h"

#define BAR_COLUMNS 120 /* narrower terminals get no progress bars */
#define NAME_MOST 24    /* columns of a name on a terminal */
#define QUEUED_SHOWN 20
#define ENDED_SHOWN 10

/* Three blocks: the jobs that have nodes or are about to, the queue in its turn, the last ones that ended. */
enum jobs_block { BLOCK_RUNNING, BLOCK_QUEUED, BLOCK_ENDED };

static const struct table_column running_columns[] = {
    {"JOB", true},
    {"NAME", .most = NAME_MOST},
    {"STATE"},
    {"NODES", .spare = 3, .most = 30},
    {"PROGRESS", .optional = true},
    {"LOSS", .spare = TABLE_LATE + 1, .optional = true},
    {"VAL", .spare = 2, .optional = true},
    {"SPEED", .spare = 4, .optional = true},
    {"ETA", .spare = TABLE_LATE, .optional = true},
    {"USER", .spare = 1, .most = 16},
    {"TIME", true},
    {"REASON", .optional = true, .wrap = true},
};
static const struct table_column queued_columns[] = {
    {"JOB", true},
    {"NAME", .most = NAME_MOST},
    {"ASKS", .spare = 2},
    {"PRIORITY", true, .spare = 3, .optional = true},
    {"USER", .spare = 1, .most = 16},
    {"WAITS", true},
    {"STARTS", true, .spare = 4, .optional = true},
    {"REASON", .optional = true, .wrap = true},
};
static const struct table_column ended_columns[] = {
    {"JOB", true},
    {"NAME", .most = NAME_MOST},
    {"STATE"},
    {"PROGRESS", .spare = 4, .optional = true},
    {"LOSS", .spare = 3, .optional = true},
    {"VAL", .spare = 2, .optional = true},
    {"USER", .spare = 1, .most = 16},
    {"TOOK", true},
    {"ENDED", true},
    {"REASON", .optional = true, .wrap = true},
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

static enum jobs_block jobs_block_of(const Ddp__V1__JobStatus *job)
{
    if (job_status_ended(job))
        return BLOCK_ENDED;
    return strcmp(job->state, "queued") == 0 ? BLOCK_QUEUED : BLOCK_RUNNING;
}

static void jobs_metric_cell(struct table *t, const Ddp__V1__JobStatus *job)
{
    double loss;
    table_cell(t, STYLE_NONE, job_status_metric(job, "loss", &loss) ? fmt_metric(loss).text : "");
}

static void jobs_running_row(struct table *t, const Ddp__V1__JobStatus *job, const struct term *term)
{
    CLEANUP(buf_release) struct buf nodes = {0}, progress = {0}, val = {0}, speed = {0}, reason = {0};
    const bool runs = strcmp(job->state, "running") == 0;
    const int64_t eta = job_status_eta_ms(job);
    jobs_nodes_cell(job, &nodes);
    jobs_progress_cell(job, term, &progress);
    screen_validation(job, &val);
    screen_speed(job, &speed);
    table_cell(t, style_of_state(job->state), job->state);
    table_cell(t, STYLE_NONE, jobs_text(&nodes));
    table_cell(t, STYLE_NONE, jobs_text(&progress));
    jobs_metric_cell(t, job);
    table_cell(t, STYLE_NONE, jobs_text(&val));
    table_cell(t, STYLE_NONE, jobs_text(&speed));
    table_cell(t, STYLE_NONE, eta >= 0 ? text_duration(eta).text : "");
    table_cell(t, STYLE_NONE, job->user);
    table_cell(t, STYLE_NONE, text_age(job_status_run_ms(job, term->now_ms)).text);
    screen_presence(job, &reason);
    if (!runs && *job->reason)
        buf_printf(&reason, "%s%s", reason.len ? "; " : "", job->reason);
    table_cell(t, STYLE_NONE, jobs_text(&reason));
}

static void jobs_queued_row(struct table *t, const Ddp__V1__JobStatus *job, const struct term *term)
{
    CLEANUP(buf_release) struct buf priority = {0};
    buf_printf(&priority, "%d", job->priority);
    table_cell(t, STYLE_NONE, job->asks);
    table_cell(t, STYLE_NONE, job->priority ? priority.data : "");
    table_cell(t, STYLE_NONE, job->user);
    table_cell(t, STYLE_NONE, text_age(term->now_ms - job->created_ms).text);
    const int64_t start = job->start_estimate ? job->start_estimate->start_ms : 0;
    table_cell(t, STYLE_NONE, start ? text_clock(start, term->now_ms, false).text : "");
    table_cell(t, STYLE_NONE, job->reason);
}

static void jobs_ended_row(struct table *t, const Ddp__V1__JobStatus *job, const struct term *term)
{
    CLEANUP(buf_release) struct buf progress = {0}, val = {0}, reason = {0};
    jobs_progress_cell(job, &(struct term){0}, &progress);
    screen_validation(job, &val);
    jobs_reason_cell(job, &reason);
    table_cell(t, style_of_state(job->state), job->state);
    table_cell(t, STYLE_NONE, jobs_text(&progress));
    jobs_metric_cell(t, job);
    table_cell(t, STYLE_NONE, jobs_text(&val));
    table_cell(t, STYLE_NONE, job->user);
    table_cell(t, STYLE_NONE, job->started_ms ? text_age(job->ended_ms - job->started_ms).text : "");
    table_cell(t, STYLE_NONE, text_age(term->now_ms - job->ended_ms).text);
    table_cell(t, STYLE_NONE, job_status_succeeded(job) ? "" : jobs_text(&reason));
}

static const struct jobs_look {
    const char *title;
    const struct table_column *columns;
    size_t count, shown; /* shown: how many, unless the user has chosen the jobs; 0: all */
    void (*row)(struct table *t, const Ddp__V1__JobStatus *job, const struct term *term);
    const char *more; /* the command that lists those that are left out */
} looks[] = {
    [BLOCK_RUNNING] = {"running", running_columns, ARRAY_LEN(running_columns), 0, jobs_running_row, NULL},
    [BLOCK_QUEUED] = {"queued, next job first", queued_columns, ARRAY_LEN(queued_columns), QUEUED_SHOWN,
                      jobs_queued_row, "ddpctl status --state queued"},
    [BLOCK_ENDED] = {"ended", ended_columns, ARRAY_LEN(ended_columns), ENDED_SHOWN, jobs_ended_row,
                     "ddpctl status --all"},
};

/* The queue in the order in which jobs get their turn, jobs on hold last; those that have ended the newest first; the
 * others by number. */
static int jobs_compare(const void *a, const void *b)
{
    const Ddp__V1__JobStatus *x = *(Ddp__V1__JobStatus *const *)a, *y = *(Ddp__V1__JobStatus *const *)b;
    const enum jobs_block block = jobs_block_of(x);
    if (block == BLOCK_ENDED && x->ended_ms != y->ended_ms)
        return x->ended_ms > y->ended_ms ? -1 : 1;
    if (block == BLOCK_QUEUED) {
        const bool x_held = strncmp(x->reason, "on hold", 7) == 0,
                   y_held = strncmp(y->reason, "on hold", 7) == 0;
        if (x_held != y_held)
            return x_held ? 1 : -1;
        if (x->priority != y->priority)
            return x->priority > y->priority ? -1 : 1;
    }
    return (x->job > y->job) - (x->job < y->job);
}

static void jobs_put_block(const Ddp__V1__ListJobsReply *reply, enum jobs_block block, bool chosen,
                           const struct term *term, struct buf *out)
{
    const struct jobs_look *look = &looks[block];
    Ddp__V1__JobStatus **jobs = xcalloc(reply->n_jobs + 1, sizeof(*jobs));
    CLEANUP(table_release) struct table *t = table_new(look->columns, look->count);
    CLEANUP(buf_release) struct buf title = {0};
    size_t count = 0;
    for (size_t i = 0; i < reply->n_jobs; i++)
        if (jobs_block_of(reply->jobs[i]) == block)
            jobs[count++] = reply->jobs[i];
    if (count)
        qsort(jobs, count, sizeof(*jobs), jobs_compare);
    const size_t shown = look->shown && !chosen && count > look->shown ? look->shown : count;
    for (size_t i = 0; i < shown; i++) {
        table_cell(t, STYLE_NONE, text_id(jobs[i]->job).text);
        table_cell(t, STYLE_NONE, jobs[i]->name);
        look->row(t, jobs[i], term);
        table_end_row(t);
    }
    free(jobs);
    if (!count)
        return;
    buf_printf(&title, "%s (%zu)", look->title, count);
    term_puts(term, out, STYLE_BOLD, title.data);
    buf_putc(out, '\n');
    table_print(t, term, out);
    if (shown < count)
        buf_printf(out, "and %zu more: `%s`\n", count - shown, look->more);
    buf_putc(out, '\n');
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

void screen_jobs(const Ddp__V1__ListJobsReply *reply, bool chosen, const struct term *term, struct buf *out)
{
    jobs_put_block(reply, BLOCK_RUNNING, chosen, term, out);
    jobs_put_block(reply, BLOCK_QUEUED, chosen, term, out);
    jobs_put_block(reply, BLOCK_ENDED, chosen, term, out);
    for (size_t i = 0; i < reply->n_jobs; i++)
        jobs_put_notes(reply->jobs[i], term, out);
    jobs_put_totals(reply, out);
}
