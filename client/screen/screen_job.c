#include "client/screen/screen_job.h"

#include <stdlib.h>
#include <string.h>

#include "base/job/job.h"
#include "base/job/sync_choice.h"
#include "base/mem.h"
#include "client/job_status.h"
#include "client/screen/screen_parts.h"
#include "client/text/format.h"
#include "client/text/shell_quote.h"
#include "client/text/table.h"

static const struct table_column rank_columns[] = {
    {"RANK", false},
    {"NODE", false},
    {"DEVICE", false},
    {"PID", true},
    {"STATE", false},
    /* a command reports none of the first three; nodes measure the others */
    {"STEP", true, .optional = true},
    {"MS/STEP", true, .optional = true},
    {"WAIT", true, .optional = true},
    {"MEM", true, .optional = true},
    {"CPU", true, .optional = true},
    {"GPU", true, .optional = true},
    {"GPU MEM", true, .optional = true},
};

static void job_put_head(const Ddp__V1__JobStatus *job, const struct term *term, struct buf *out)
{
    CLEANUP(buf_release) struct buf name = {0};
    const size_t start = out->len;
    term_printf_safe(&name, "%s #%lld", job->name, (long long)job->job);
    term_puts(term, out, STYLE_BOLD, name.data);
    if (job->continues)
        buf_printf(out, " (continues #%lld)", (long long)job->continues);
    buf_puts(out, "  ");
    term_puts(term, out, style_of_state(job->state), job->state);
    if (job->generation)
        buf_printf(out, "  generation %lld", (long long)job->generation);
    if (job->restarts_used) {
        buf_printf(out, " (%d of %d restarts used", job->restarts_used, job->max_restarts);
        if (job->n_last_restart) {
            buf_puts(out, ": ");
            term_puts_safe(out, job->last_restart[job->n_last_restart - 1]);
        }
        buf_putc(out, ')');
    }
    if (job_status_ended(job))
        buf_printf(out, "  after %s", text_duration(job_status_run_ms(job, term->now_ms)).text);
    buf_putc(out, '\n');
    if (*job->stall) { /* the coordinator has noticed that a rank hangs */
        CLEANUP(buf_release) struct buf stall = {0};
        term_puts_safe(&stall, job->stall);
        term_puts(term, out, STYLE_BAD, stall.data);
        buf_printf(out, "\n   ddpctl why %lld\n", (long long)job->job);
    }
    for (size_t i = 0; i < job->n_notes; i++) {
        CLEANUP(buf_release) struct buf note = {0};
        buf_puts(&note, "NOTE: ");
        term_puts_safe(&note, job->notes[i]);
        term_puts(term, out, STYLE_BAD, note.data);
        buf_putc(out, '\n');
    }
    if (*job->reason && !screen_reason_is_failure(job) && !job_status_succeeded(job) &&
        strcmp(job->state, "running") != 0) {
        term_puts_safe(out, job->reason);
        buf_putc(out, '\n');
    }
    if (job_status_put_start(job, term->now_ms, out))
        buf_putc(out, '\n');
    CLEANUP(buf_release) struct buf presence = {0};
    screen_presence(job, &presence);
    if (presence.len)
        buf_printf(out, "%s\n", presence.data);
    screen_not_restarted(job, "", out);
    term_wrap(term, out, start, 0);
}

/* "89.1 % (loss 0.31, best 0.3 @4500)", "1.46 (best 1.46 @3500)". The best value is that of the loss. */
static void job_put_validation(const Ddp__V1__JobStatus *job, struct buf *out)
{
    const Ddp__V1__Progress *p = job->progress;
    double loss, accuracy;
    bool both = job_status_metric(job, "val_acc", &accuracy) && job_status_metric(job, "val_loss", &loss);
    size_t start = out->len;
    screen_validation(job, out);
    if (out->len == start || !(both || p->has_best_val))
        return;
    buf_puts(out, " (");
    if (both)
        buf_printf(out, "loss %s", fmt_metric(loss).text);
    if (p->has_best_val)
        buf_printf(out, "%sbest %s @%lld", both ? ", " : "", fmt_metric(p->best_val).text,
                   (long long)p->best_val_step);
    buf_putc(out, ')');
}

static void job_put_step(const Ddp__V1__JobStatus *job, const struct term *term, struct buf *out)
{
    const Ddp__V1__Progress *p = job->progress;
    CLEANUP(buf_release) struct buf val = {0};
    double value;
    buf_printf(out, "step %s", text_count(p->step).text);
    if (p->steps)
        buf_printf(out, " / %s", text_count(p->steps).text);
    if (p->epoch > 0)
        buf_printf(out, "  epoch %.1f", p->epoch);
    if (job_status_metric(job, "loss", &value)) {
        buf_printf(out, "  loss %s", fmt_metric(value).text);
        if (term->live && p->n_loss_history > 1)
            buf_printf(out, " %s", fmt_spark(p->loss_history, p->n_loss_history, 12).text);
    }
    job_put_validation(job, &val);
    if (val.len)
        buf_printf(out, "  val %s", val.data);
    if (job_status_metric(job, "lr", &value))
        buf_printf(out, "  lr %s", fmt_metric(value).text);
    if (job_status_metric(job, "grad_norm", &value))
        buf_printf(out, "  grad %s", fmt_metric(value).text);
    if (*job->metrics_from) {
        buf_puts(out, "  (read from ");
        term_puts_safe(out, job->metrics_from);
        buf_putc(out, ')');
    }
    buf_putc(out, '\n');
}

/* Metrics that have a place on the screen or are left out. Any other metric, from a user's own reports, is
 * listed by name. */
static bool job_metric_is_shown(const char *name)
{
    static const char *const known[] = {
        "loss",           "val_loss",        "val_acc",           "lr",
        "grad_norm",      "tokens_per_s",    "samples_per_s",     "gflops",
        "peak_share",     "exposed",         "ms_per_step",       "wait_ms",
        "steps",          "epoch",           "memory_bytes",      "parameters",
        "bytes",          "tokens",          "sync_bytes",        "parameter_bytes",
        "gradient_bytes", "optimizer_bytes", "activation_bytes",  "digest_high",
        "digest_low",     "bits_per_char",   "bits_per_byte",     "sync_every",
        "sync_bits",      "sync_compute_ms", "sync_allreduce_ms", "sync_allreduce_bytes",
        "sync_nodes",     "sync_ranks",      "balance_samples",   "bytes_per_parameter",
        "balance_ms",     "state_bytes"};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(name, known[i]) == 0)
            return true;
    return false;
}

static bool job_count_metric(const Ddp__V1__JobStatus *job, const char *name, int64_t *out)
{
    double value;
    if (!job_status_metric(job, name, &value) || !(value >= 0 && value < 1e15))
        return false;
    *out = (int64_t)value;
    return true;
}

struct job_round {
    int64_t number, steps, samples;
};

/* Whether the job averages. A user's program may report metrics with some of these names, but hardly all three. */
static bool job_reports_rounds(const Ddp__V1__JobStatus *job, struct job_round *out)
{
    return job_count_metric(job, "round", &out->number) &&
           job_count_metric(job, "round_steps", &out->steps) &&
           job_count_metric(job, "round_samples", &out->samples);
}

static bool metric_is_of_rounds(const char *name)
{
    return strcmp(name, "round") == 0 || strncmp(name, "round_", strlen("round_")) == 0;
}

/* Names the rank that computes longest, if it takes 3 % longer than the average of the others: they wait for
 * it. */
static void job_put_slowest(const Ddp__V1__JobStatus *job, struct buf *out, const char *gap)
{
    const Ddp__V1__RankStatus *worst = NULL;
    double sum = 0, most = 0;
    if (job->n_ranks < 2 || job_status_ended(job))
        return;
    for (size_t i = 0; i < job->n_ranks; i++) {
        const Ddp__V1__RankStatus *r = job->ranks[i];
        double busy = r->ms_per_step - r->wait_ms;
        if (!(busy > 0))
            return; /* the rank's waiting overlaps its computing, so there is nothing to compare */
        sum += busy;
        if (busy > most) {
            most = busy;
            worst = r;
        }
    }
    double others = (sum - most) / (double)(job->n_ranks - 1);
    if (most / others > 1.03)
        buf_printf(out, "%sslowest: rank %d (+%.0f %%)", gap, worst->rank, (most / others - 1) * 100);
}

static void job_put_speed(const Ddp__V1__JobStatus *job, struct buf *out)
{
    size_t start = out->len;
    double value;
    int64_t eta = job_status_ended(job) ? -1 : job_status_eta_ms(job);
    struct job_round last;
    const bool rounds = job_reports_rounds(job, &last); /* job_put_round */
    /* two blanks between the pieces, none before the first */
#define GAP (out->len > start ? "  " : "")
    screen_speed(job, out);
    if (job_status_metric(job, "gflops", &value)) {
        buf_printf(out, "%s%s GFLOP/s", GAP, fmt_metric(value).text);
        if (job_status_metric(job, "peak_share", &value))
            buf_printf(out, " (%s of peak)", fmt_percent(value).text);
    }
    if (job_status_metric(job, "exposed", &value))
        buf_printf(out, "%sall-reduce %s exposed", GAP, fmt_percent(value).text);
    job_put_slowest(job, out, GAP);
    if (eta >= 0)
        buf_printf(out, "%seta %s", GAP, text_duration(eta).text);
    for (size_t i = 0; i < job->progress->n_metrics; i++)
        if (!job_metric_is_shown(job->progress->metrics[i]->name) &&
            !(rounds && metric_is_of_rounds(job->progress->metrics[i]->name))) {
            buf_puts(out, GAP);
            term_puts_safe(out, job->progress->metrics[i]->name);
            buf_printf(out, " %s", fmt_metric(job->progress->metrics[i]->value).text);
        }
#undef GAP
    if (out->len > start)
        buf_putc(out, '\n');
}

/* "0.8M parameters 3.3 MB, gradients 3.3 MB, optimizer 6.6 MB, activations 40 MB; 61 MB a rank; memory 16 B a parameter and
 * rank" */
static void job_put_sizes(const Ddp__V1__JobStatus *job, struct buf *out)
{
    static const struct {
        const char *metric, *word;
    } parts[] = {{"gradient_bytes", "gradients"},
                 {"optimizer_bytes", "optimizer"},
                 {"activation_bytes", "activations"}};
    double parameters, bytes;
    if (!job_status_metric(job, "parameters", &parameters) ||
        !job_status_metric(job, "parameter_bytes", &bytes))
        return;
    buf_printf(out, "%s parameters %s", text_short(parameters).text, text_bytes((int64_t)bytes).text);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (job_status_metric(job, parts[i].metric, &bytes) && bytes > 0)
            buf_printf(out, ", %s %s", parts[i].word, text_bytes((int64_t)bytes).text);
    if (job_status_metric(job, "bytes", &bytes))
        buf_printf(out, "; %s a rank", text_bytes((int64_t)bytes).text);
    if (job_status_metric(job, "bytes_per_parameter", &bytes))
        buf_printf(out, ", %.3g B a parameter", bytes);
    buf_putc(out, '\n');
}

/* "sync auto: diloco every 50, wire int4" */
static void job_put_choice(const Ddp__V1__JobStatus *job, struct buf *out)
{
    struct sync_spec chosen;
    double every, bits;
    if (!job_status_metric(job, "sync_every", &every) || !job_status_metric(job, "sync_bits", &bits))
        return;
    sync_choice_spec(every, bits, &chosen);
    buf_puts(out, "sync auto: ");
    sync_print(out, &chosen);
    buf_putc(out, '\n');
}

/* "round 14: 50 steps, 1,600 samples, waited 120 ms, sent 2.4 MB, norm 0.31, agreement 0.62": the last one of the lowest
 * rank. */
static void job_put_round(const Ddp__V1__JobStatus *job, struct buf *out)
{
    struct job_round last;
    int64_t bytes;
    double value;
    if (!job_reports_rounds(job, &last))
        return;
    buf_printf(out, "round %s: %s, %s samples", text_count(last.number).text,
               text_counted(last.steps, "step").text, text_count(last.samples).text);
    if (job_status_metric(job, "round_wait_ms", &value))
        buf_printf(out, ", waited %s ms", fmt_metric(value).text);
    if (job_count_metric(job, "round_bytes", &bytes))
        buf_printf(out, ", sent %s", text_bytes(bytes).text);
    if (job_status_metric(job, "round_norm", &value))
        buf_printf(out, ", norm %s", fmt_metric(value).text);
    if (job_status_metric(job, "round_agreement", &value))
        buf_printf(out, ", agreement %.2f", value);
    buf_putc(out, '\n');
}

static void job_decimal_cell(struct table *t, double value)
{
    CLEANUP(buf_release) struct buf text = {0};
    buf_printf(&text, value >= 100 ? "%.0f" : "%.1f", value);
    table_cell(t, STYLE_NONE, value > 0 ? text.data : "");
}

static void job_percent_cell(struct table *t, enum style style, double fraction)
{
    table_cell(t, style, fraction >= 0 ? fmt_percent(fraction).text : ""); /* NaN: not known */
}

/* The memory that the rank reports, or else what its node measures; the other values are its node's. */
static void job_usage_cells(struct table *t, const Ddp__V1__RankStatus *r)
{
    const Ddp__V1__Usage none = DDP__V1__USAGE__INIT, *u = r->usage ? r->usage : &none;
    const double memory = r->memory_bytes ? (double)r->memory_bytes : u->memory_bytes;

    table_cell(t, STYLE_NONE, memory > 0 ? text_bytes((int64_t)memory).text : "");
    job_percent_cell(t, STYLE_NONE, r->usage ? u->cpu : -1);
    job_percent_cell(t, r->gpu_idle_ms >= 60000 ? STYLE_BAD : STYLE_NONE, u->gpus ? u->gpu_utilisation : -1);
    table_cell(t, STYLE_NONE,
               u->gpus && u->gpu_memory_bytes > 0 ? text_bytes((int64_t)u->gpu_memory_bytes).text : "");
}

/* A command does not join or report, so "spawned" is the last state that its ranks reach: they run. */
static const char *job_rank_state(const Ddp__V1__JobStatus *job, const Ddp__V1__RankStatus *r)
{
    const bool runs = strcmp(job->kind, "command") == 0 && strcmp(r->state, "spawned") == 0;
    return runs ? "running" : r->state;
}

/* Red is for the rank that failed. The others were killed because of it. */
static enum style job_rank_style(const Ddp__V1__JobStatus *job, const Ddp__V1__RankStatus *r)
{
    const bool other = job->failure && *job->failure->node && job->failure->rank != r->rank;
    if (!*r->detail)
        return style_of_state(job_rank_state(job, r));
    if (other &&
        (strcmp(r->detail, "killed by signal 15") == 0 || strcmp(r->detail, "killed by signal 9") == 0))
        return STYLE_DIM;
    return STYLE_BAD;
}

static void job_rank_row(struct table *t, const Ddp__V1__JobStatus *job, const Ddp__V1__RankStatus *r)
{
    CLEANUP(buf_release) struct buf number = {0}, state = {0};
    buf_printf(&number, "%d", r->rank);
    table_cell(t, STYLE_NONE, number.data);
    table_cell(t, STYLE_NONE, r->node);
    table_cell(t, STYLE_NONE, r->device);
    buf_clear(&number);
    buf_printf(&number, "%lld", (long long)r->pid);
    table_cell(t, STYLE_NONE, r->pid ? number.data : "");
    if (*r->detail) /* such as "killed by signal 9": says more than the state */
        term_puts_safe(&state, r->detail);
    else
        buf_puts(&state, job_rank_state(job, r));
    table_cell(t, job_rank_style(job, r), state.data);
    table_cell(t, STYLE_NONE, r->step ? text_count(r->step).text : "");
    job_decimal_cell(t, r->ms_per_step);
    job_decimal_cell(t, r->wait_ms);
    job_usage_cells(t, r);
    table_end_row(t);
}

static void job_put_foot(const Ddp__V1__JobStatus *job, const struct term *term, struct buf *out)
{
    const Ddp__V1__SnapshotStatus *s = job->snapshot;
    const bool snapshot = s && s->committed_ms;
    CLEANUP(buf_release) struct buf first = {0}, logs = {0};
    if (snapshot)
        term_printf_safe(&first, "snapshot  %s (%s ago, %s, committed)", s->path,
                         text_age(term->now_ms - s->committed_ms).text, text_bytes(s->bytes).text);
    if (*job->log_dir)
        term_printf_safe(&logs, "logs  %s", job->log_dir);
    if (first.len)
        buf_puts(out, first.data);
    if (first.len && logs.len) /* one line if the terminal has room for both */
        buf_puts(out, term->live && text_width(first.data) + 3 + text_width(logs.data) > term->columns
                          ? "\n"
                          : "   ");
    if (logs.len)
        buf_puts(out, logs.data);
    if (first.len || logs.len)
        buf_putc(out, '\n');
}

#define COMMAND_MOST 400 /* bytes of a command: a script may be an argument */

/* "command  python3 train.py --epochs 50", "directory  /home/ana" */
static void job_put_command(const struct job_spec *spec, struct buf *out)
{
    CLEANUP(buf_release) struct buf words = {0};
    for (size_t i = 0; spec->command && spec->command[i] && words.len < COMMAND_MOST; i++) {
        if (i)
            buf_putc(&words, ' ');
        shell_quote(&words, spec->command[i]);
    }
    if (words.len)
        term_printf_safe(out, "command    %.*s%s", (int)text_clip(words.data, COMMAND_MOST), words.data,
                         words.len > COMMAND_MOST ? "..." : "");
    if (words.len)
        buf_putc(out, '\n');
    if (spec->workdir && *spec->workdir)
        term_printf_safe(out, "directory  %s", spec->workdir);
    if (spec->workdir && *spec->workdir)
        buf_putc(out, '\n');
}

/* "limits     1h53m of 2h00m left, 2 of 3 restarts left" */
static void job_put_limits(const Ddp__V1__JobStatus *job, const struct job_spec *spec,
                           const struct term *term, struct buf *out)
{
    const int restarts = job->max_restarts - job->restarts_used;
    const bool timed = spec->time_limit_ms > 0;
    if (job_status_ended(job) || (!timed && !job->max_restarts))
        return;
    buf_puts(out, "limits     ");
    if (timed) {
        int64_t used = job->started_ms ? term->now_ms - job->started_ms : 0;
        if (used > spec->time_limit_ms)
            used = spec->time_limit_ms;
        buf_printf(out, "%s of ", text_duration(spec->time_limit_ms - used).text);
        buf_printf(out, "%s left", text_duration(spec->time_limit_ms).text);
    }
    if (job->max_restarts)
        buf_printf(out, "%s%d of %d restart%s left", timed ? ", " : "", restarts > 0 ? restarts : 0,
                   job->max_restarts, text_plural(job->max_restarts));
    buf_putc(out, '\n');
}

/* Who submitted the job and when, what it runs, how long it waited, and what is left of its limits. */
static void job_put_origin(const Ddp__V1__JobStatus *job, const struct term *term, struct buf *out)
{
    struct job_spec spec = {0};
    struct err e;
    term_printf_safe(out, "submitted  %s by %s", text_clock(job->created_ms, term->now_ms, false).text,
                     job->user);
    if (job->priority)
        buf_printf(out, ", priority %d", job->priority);
    const int64_t until = job->started_ms ? job->started_ms : job->ended_ms ? job->ended_ms : term->now_ms;
    buf_printf(out, ", %s in the queue", text_duration(until - job->created_ms).text);
    if (job->started_ms && !job->ended_ms)
        buf_printf(out, ", runs for %s", text_duration(term->now_ms - job->started_ms).text);
    if (job->ended_ms)
        buf_printf(out, ", ended %s", text_clock(job->ended_ms, term->now_ms, false).text);
    buf_putc(out, '\n');
    if (*job->job_file && job_parse(&spec, job->job_file, strlen(job->job_file), "job file", &e) == ERR_OK) {
        job_put_command(&spec, out);
        job_put_limits(job, &spec, term, out);
    }
    job_release(&spec);
}

void screen_job(const Ddp__V1__JobStatus *job, const Ddp__V1__ProbeJobReply *probe, const struct term *term,
                struct buf *out)
{
    job_put_head(job, term, out);
    job_put_origin(job, term, out);
    if (job->progress && (job->progress->step || job->progress->n_metrics)) {
        const size_t start = out->len;
        job_put_step(job, term, out);
        job_put_speed(job, out);
        job_put_choice(job, out);
        job_put_round(job, out);
        if (job_status_put_balance(job, out))
            buf_putc(out, '\n');
        job_put_sizes(job, out);
        term_wrap(term, out, start, 2);
    }
    if (job->n_ranks) {
        CLEANUP(table_release) struct table *t = table_new(rank_columns, ARRAY_LEN(rank_columns));
        for (size_t i = 0; i < job->n_ranks; i++)
            job_rank_row(t, job, job->ranks[i]);
        table_print(t, term, out);
    }
    job_put_foot(job, term, out);
    if (strcmp(job->state, "failed") == 0) {
        if (!screen_could_not_start(job)) /* which was said at the head */
            screen_failure(job, probe, term, out);
        screen_next(job, out);
    }
}
