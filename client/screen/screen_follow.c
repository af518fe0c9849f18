#include "client/screen/screen_follow.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "client/diagnose/failed_ranks.h"
#include "client/job_status.h"
#include "client/text/format.h"

void follow_view_init(struct follow_view *v, struct term term)
{
    *v = (struct follow_view){.term = term, .last_step = -1};
}

void follow_view_break(struct follow_view *v, struct buf *out)
{
    if (v->drawn)
        buf_putc(out, '\n');
    v->drawn = false;
}

void follow_view_yield(struct follow_view *v, struct buf *out)
{
    if (v->drawn)
        buf_puts(out, "\r\033[K");
    v->drawn = v->term.live = false;
    v->yielded = true;
}

/* Prints a line that stays. */
static void follow_put_line(struct follow_view *v, struct buf *out, const char *line)
{
    if (v->drawn)
        buf_puts(out, "\r\033[K");
    v->drawn = false;
    buf_puts(out, line);
    buf_putc(out, '\n');
}

/* Draws a line that the next one replaces; on a terminal only. */
static void follow_draw_line(struct follow_view *v, struct buf *out, const char *line)
{
    size_t fits = text_clip(line, v->term.columns > 1 ? v->term.columns - 1 : 79);
    buf_puts(out, v->drawn ? "\r\033[K" : "");
    buf_append(out, line, fits);
    v->drawn = true;
}

/* "#9 kjv-gpt queued → box1 (2), box2 (2) → joined 4/4 in 38 ms; 0.8M parameters; logs /var/log/ddp/9" */
static void follow_head_line(const struct follow_view *v, const Ddp__V1__JobStatus *job, bool placed,
                             bool running, struct buf *line)
{
    double parameters, bytes;
    buf_printf(line, "#%lld %s", (long long)job->job, job->name);
    if (job->continues)
        buf_printf(line, " (continues #%lld)", (long long)job->continues);
    buf_puts(line, " queued");
    if (!placed) {
        if (!v->own) /* its only node comes in a moment; `run` itself says so if it does not */
            screen_reason(job, line);
        return;
    }
    buf_puts(line, " → ");
    screen_place(job, line);
    /* only the workers of a train job join; those of a command are started and no more is known of them */
    if (strcmp(job->kind, "train") == 0) {
        buf_printf(line, " → joined %d/%d", running ? job->world_size : job->joined, job->world_size);
        if (running && v->starting_ms)
            buf_printf(line, " in %s", text_duration(v->term.now_ms - v->starting_ms).text);
    } else if (running) {
        buf_printf(line, " → %d started", job->world_size);
    }
    if (running && job_status_metric(job, "parameters", &parameters))
        buf_printf(line, "; %s parameters", text_short(parameters).text);
    if (running && job_status_metric(job, "bytes", &bytes) && bytes > 0)
        buf_printf(line, ", %s a rank", text_bytes((int64_t)bytes).text);
    if (running && *job->log_dir && !v->own)
        term_printf_safe(line, "; logs %s", job->log_dir);
}

static void follow_put_head(struct follow_view *v, const Ddp__V1__JobStatus *job, struct buf *out)
{
    bool placed = job->generation > 0, queued = strcmp(job->state, "queued") == 0;
    bool running = placed && (strcmp(job->state, "running") == 0 || job_status_ended(job));
    bool complete = running || (placed && job->failure); /* a failure is only printed after this line */
    CLEANUP(buf_release) struct buf line = {0};
    if (placed && !v->starting_ms)
        v->starting_ms = v->term.now_ms;
    if (v->brief) {
        v->headed = complete;
        v->generation = job->generation;
        return;
    }
    follow_head_line(v, job, placed, running, &line);
    if (complete) {
        follow_put_line(v, out, line.data);
        v->headed = true;
        v->generation = job->generation;
    } else if (v->term.live) {
        follow_draw_line(v, out, line.data);
    } else if (queued && strncmp(v->said, job->reason, sizeof(v->said) - 1) != 0) {
        follow_put_line(v, out, line.data);
        snprintf(v->said, sizeof(v->said), "%s", job->reason);
    }
}

/* What the ranks that failed wrote last, as far as it is not on the screen. */
static void follow_put_last_lines(const struct follow_view *v, const Ddp__V1__JobStatus *job, struct buf *out)
{
    CLEANUP(failed_ranks_release) struct failed_ranks ranks = {0};
    failed_ranks_find(&ranks, job, v->probe);
    ranks.first_is_told = true;
    failed_ranks_print(&ranks, v->streams ? "ddpctl: " : "", v->seen, v->seen_by, out);
}

/* A failure that leads to a new generation counts as a restart; one that ends the job does not. */
static bool follow_job_restarts(const Ddp__V1__JobStatus *job)
{
    if (job->failure->generation < job->generation) /* the new one may have ended by now */
        return job->restarts_used > 0;
    return job->restarts_used && !*job->not_restarted && !job_status_ended(job) &&
           strcmp(job->state, "stopping") != 0;
}

/* A failure is printed once, and once more if the coordinator finds out that another rank failed first. *other: the rank
 * that was printed first; -1: none. */
static bool follow_failure_is_new(struct follow_view *v, const Ddp__V1__Failure *f, int *other)
{
    const bool known = f->generation == v->failed_generation;
    if (f->generation < v->failed_generation || (known && f->rank == v->failed_rank))
        return false;
    *other = known ? v->failed_rank : -1;
    v->failed_generation = f->generation;
    v->failed_rank = f->rank;
    return true;
}

/* A generation failed: prints the cause, the rank and its node in one line. Its last lines on stderr follow if they are not
 * shown otherwise and nothing more comes: at the end of the job all ranks have ended, and then follow_put_last_lines prints
 * those of all of them. */
static void follow_put_failure(struct follow_view *v, const Ddp__V1__JobStatus *job, struct buf *out)
{
    CLEANUP(buf_release) struct buf text = {0}, line = {0};
    const bool one_line = v->brief || v->own || v->streams,
               restarts = job->failure && follow_job_restarts(job);
    int other;
    if (!job->failure || !follow_failure_is_new(v, job->failure, &other))
        return;
    buf_puts(&text, one_line ? "ddpctl: " : "");
    if (!one_line && restarts)
        buf_printf(&text, "generation %lld ended, restart %d of %d: ", (long long)job->failure->generation,
                   job->restarts_used, job->max_restarts);
    screen_failure_line(job->failure, false, &line);
    if (other >= 0)
        buf_printf(&line, ", before rank %d", other);
    if (one_line && restarts)
        buf_printf(&line, "; restart %d of %d", job->restarts_used, job->max_restarts);
    if (one_line)
        buf_puts(&text, line.data);
    else
        term_puts(&v->term, &text, STYLE_BAD, line.data);
    follow_put_line(v, out, text.data);
    if (!one_line && restarts)
        follow_put_last_lines(v, job, out);
}

static void follow_put_generation(struct follow_view *v, const Ddp__V1__JobStatus *job, struct buf *out)
{
    CLEANUP(buf_release) struct buf line = {0};
    if (v->brief || job->generation <= v->generation || strcmp(job->state, "running") != 0)
        return;
    v->generation = job->generation;
    buf_printf(&line, "generation %lld on ", (long long)job->generation);
    screen_place(job, &line);
    if (job->live)
        buf_puts(&line, ", continues from the memory of its ranks");
    else if (job->snapshot && job->snapshot->committed_ms)
        buf_printf(&line, ", continues from the snapshot of step %s", text_count(job->snapshot->step).text);
    follow_put_line(v, out, line.data);
}

/* Printed when snapshots begin to fail, when the last one begins to wait for space, and when they are written again. */
static void follow_put_unsaved(struct follow_view *v, const Ddp__V1__JobStatus *job, struct buf *out)
{
    CLEANUP(buf_release) struct buf text = {0}, line = {0};
    const bool fails = *job->unsaved, one_line = v->brief || v->own || v->streams;
    const bool begins = fails && (!v->unsaved || (job->waits_for_space && !v->waits_for_space));
    if (begins) {
        buf_puts(&line, "NOTE: ");
        term_puts_safe(&line, job->unsaved);
    } else if (v->unsaved && !fails) {
        buf_puts(&line, "snapshots are written again");
    }
    v->unsaved = fails;
    v->waits_for_space = job->waits_for_space;
    if (!line.len)
        return;
    buf_puts(&text, one_line ? "ddpctl: " : "");
    if (begins)
        term_puts(&v->term, &text, STYLE_BAD, line.data);
    else
        buf_puts(&text, line.data);
    follow_put_line(v, out, text.data);
}

static void follow_progress_line(const struct follow_view *v, const Ddp__V1__JobStatus *job, struct buf *line)
{
    const Ddp__V1__Progress *p = job->progress;
    CLEANUP(buf_release) struct buf val = {0}, speed = {0}, presence = {0};
    double fraction = job_status_fraction(job), loss;
    int64_t eta = job_status_eta_ms(job);
    buf_printf(line, "step %s", text_count(p->step).text);
    if (p->steps)
        buf_printf(line, "/%s", text_count(p->steps).text);
    /* a bar would only be noise in a log file */
    if (fraction >= 0 && v->term.live)
        buf_printf(line, " %s", fmt_bar(fraction, 10).text);
    if (fraction >= 0)
        buf_printf(line, " %d%%", (int)(fraction * 100));
    if (job_status_metric(job, "loss", &loss))
        buf_printf(line, "  loss %s", fmt_metric(loss).text);
    screen_validation(job, &val);
    if (val.len)
        buf_printf(line, "  val %s", val.data);
    screen_speed(job, &speed);
    if (speed.len)
        buf_printf(line, "  %s", speed.data);
    if (eta >= 0)
        buf_printf(line, "  eta %s", text_duration(eta).text);
    if (job->generation > 1)
        buf_printf(line, "  gen %lld", (long long)job->generation);
    if (strcmp(job->state, "running") != 0)
        buf_printf(line, "  %s", job->state);
    screen_presence(job, &presence);
    if (presence.len)
        buf_printf(line, "  %s", presence.data);
}

static void follow_put_progress(struct follow_view *v, const Ddp__V1__JobStatus *job, struct buf *out)
{
    const Ddp__V1__Progress *p = job->progress;
    CLEANUP(buf_release) struct buf line = {0};
    int64_t age = v->term.now_ms - v->first_ms;
    int64_t pause = age < 60000 ? 2000 : age < 3600000 ? 10000 : 60000;
    if (v->brief || v->yielded || !p || (p->step == 0 && p->n_metrics == 0))
        return;
    /* a line in a pipe stays, so it must be new and not too soon */
    if (!v->term.live && (p->step == v->last_step || v->term.now_ms - v->last_line_ms < pause))
        return;
    v->last_step = p->step;
    v->last_line_ms = v->term.now_ms;
    follow_progress_line(v, job, &line);
    if (v->term.live)
        follow_draw_line(v, out, line.data);
    else
        follow_put_line(v, out, line.data);
}

/* "#9 succeeded in 9m41s: val 1.39, 12.5M tokens, 1 restart, out/step-5000" */
static void follow_end_line(const struct follow_view *v, const Ddp__V1__JobStatus *job, struct buf *line)
{
    CLEANUP(buf_release) struct buf val = {0}, facts = {0};
    double tokens, loss, bits;
    screen_validation(job, &val);
    /* the validation result says more than the training loss */
    if (val.len)
        buf_printf(&facts, ", val %s", val.data);
    else if (job_status_metric(job, "loss", &loss))
        buf_printf(&facts, ", loss %s", fmt_metric(loss).text);
    if (job_status_metric(job, "bits_per_char", &bits))
        buf_printf(&facts, " (%.2f bits/char)", bits);
    else if (job_status_metric(job, "bits_per_byte", &bits))
        buf_printf(&facts, " (%.2f bits/byte)", bits);
    if (job_status_metric(job, "tokens", &tokens))
        buf_printf(&facts, ", %s tokens", text_short(tokens).text);
    if (strcmp(job->state, "failed") == 0 && job->restarts_used && job->restarts_used >= job->max_restarts)
        buf_printf(&facts, ", all %s used", text_counted(job->restarts_used, "restart").text);
    else if (job->restarts_used)
        buf_printf(&facts, ", %s", text_counted(job->restarts_used, "restart").text);
    if (job->snapshot && job->snapshot->committed_ms)
        term_printf_safe(&facts, ", %s", job->snapshot->path);
    if (v->brief)
        buf_puts(line, "ddpctl:");
    else
        buf_printf(line, "#%lld", (long long)job->job);
    buf_printf(line, " %s %s %s%s%s", job->state, job_status_succeeded(job) ? "in" : "after",
               text_duration(job_status_run_ms(job, v->term.now_ms)).text, facts.len ? ": " : "",
               facts.len ? facts.data + 2 : "");
    if (!job_status_succeeded(job) && !screen_reason_is_failure(job) &&
        !screen_could_not_start(job)) /* which was printed before */
        screen_reason(job, line);
}

static void follow_put_end(struct follow_view *v, const Ddp__V1__JobStatus *job, struct buf *out)
{
    CLEANUP(buf_release) struct buf line = {0};
    v->ended = true;
    if (!v->brief && !v->own && strcmp(job->state, "failed") == 0)
        follow_put_last_lines(v, job, out);
    const bool cancelled = strcmp(job->state, "cancelled") == 0;
    if (!v->brief ||
        (v->tells_end && (job_status_succeeded(job) || cancelled) && strcmp(job->kind, "train") == 0)) {
        follow_end_line(v, job, &line);
        follow_put_line(v, out, line.data);
    } else if (strcmp(job->state, "failed") == 0 && !job->failure) {
        buf_puts(out, "ddpctl: the job failed");
        screen_reason(job, out);
        buf_putc(out, '\n');
    }
    screen_not_restarted(job, v->brief || v->streams ? "ddpctl: " : "", out);
    const bool resumable = cancelled && job->snapshot && job->snapshot->committed_ms;
    if (v->brief || v->own) { /* of ddpctl run, whose coordinator ends with the job */
        if (resumable && v->tells_end && strcmp(job->kind, "train") == 0)
            buf_puts(out, "   to continue, type the command again with --set train.resume=continue\n");
        return;
    }
    if (strcmp(job->state, "failed") == 0)
        screen_next(job, out);
    else if (resumable)
        buf_printf(out, "   ddpctl resume %lld\n", (long long)job->job);
}

void follow_view_update(struct follow_view *v, const Ddp__V1__JobStatus *job, struct buf *out)
{
    if (v->ended)
        return;
    if (!v->first_ms)
        v->first_ms = v->term.now_ms;
    if (v->away)
        follow_put_line(v, out, "the coordinator is back");
    v->away = false;
    if (!v->headed)
        follow_put_head(v, job, out);
    follow_put_failure(v, job, out);
    if (v->headed && !job_status_ended(job)) {
        follow_put_generation(v, job, out);
        follow_put_unsaved(v, job, out);
        follow_put_progress(v, job, out);
    }
    if (job_status_ended(job))
        follow_put_end(v, job, out);
}

void follow_view_away(struct follow_view *v, struct buf *out)
{
    if (!v->away && !v->ended)
        follow_put_line(v, out,
                        "the coordinator does not answer, the job goes on; waiting for it (^C detaches)");
    v->away = true;
}
