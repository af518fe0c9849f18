#include "client/top/top_job_view.h"

#include <string.h>

#include "base/mem.h"
#include "client/screen/screen_job.h"
#include "client/text/plot.h"

#define RANKS_SHOWN 8
#define CURVE_LEAST 7 /* lines of a curve: 5, and its axis */
#define CURVE_MOST 16
#define LOG_LEAST 3
#define LOG_MOST 10

static void top_put_status(const struct top_frame *f, const struct top_job *job, struct buf *out)
{
    Ddp__V1__JobStatus brief = *job->status;
    const size_t ranks = brief.n_ranks;

    if (f->term->rows && ranks > RANKS_SHOWN)
        brief.n_ranks = RANKS_SHOWN;
    brief.failure = NULL; /* `why` says it in one line */
    screen_job(&brief, NULL, f->term, out);
    if (brief.n_ranks < ranks)
        buf_printf(out, "and %zu more ranks: `ddpctl status %lld`\n", ranks - brief.n_ranks,
                   (long long)brief.job);
    if (job->why)
        term_printf_safe(out, "why: %s", job->why);
    if (job->why)
        buf_putc(out, '\n');
}

static size_t top_line_count(const struct buf *text)
{
    size_t lines = 0;

    for (size_t i = 0; i < text->len; i++)
        lines += text->data[i] == '\n';
    return lines;
}

static void top_put_curve(const struct top_frame *f, const struct top_job *job, size_t rows, struct buf *out)
{
    CLEANUP(buf_release) struct buf text = {0};
    const struct plot_curve curve = {.label = (char *)(uintptr_t)job->curve_label, .points = job->curve};
    struct plot p = {.columns = f->term->columns ? f->term->columns : 80,
                     .rows = rows,
                     .utf8 = f->utf8,
                     .colour = f->term->colour};

    p.columns = p.columns > 120 ? 120 : p.columns;
    plot_draw(&p, &curve, 1, &text);
    top_put_lines(f, &text, rows + 3, out);
}

/* The last `most` lines. */
static void top_put_log(const struct top_frame *f, const struct top_job *job, size_t most, struct buf *out)
{
    const size_t count = strv_len(job->log);
    CLEANUP(buf_release) struct buf title = {0};

    term_puts(f->term, &title, STYLE_BOLD, "log");
    top_put_line(f, title.data, title.len, false, out);
    for (size_t i = count > most ? count - most : 0; i < count; i++) {
        CLEANUP(buf_release) struct buf line = {0};
        term_puts_safe(&line, job->log[i]);
        top_put_line(f, line.data ? line.data : "", line.len, false, out);
    }
}

void top_job_draw(const struct top_frame *f, const struct top_job *job, size_t rows, struct buf *out)
{
    CLEANUP(buf_release) struct buf status = {0};
    const size_t lines = strv_len(job->log), start = out->len;

    if (!job->status) {
        const char *wait = "waiting for the coordinator";
        top_put_line(f, wait, strlen(wait), false, out);
        return;
    }
    top_put_status(f, job, &status);
    /* First the log gets its least number of lines, then the curve the lines that it needs, then the log the rest. */
    const size_t log_least = lines ? (lines < LOG_LEAST ? lines : LOG_LEAST) + 1 : 0;
    size_t used = top_line_count(&status),
           left = rows ? (rows > used ? rows - used : 0) : CURVE_MOST + LOG_MOST + 4;
    if (rows && used + log_least > rows)
        used = rows - log_least;
    top_put_lines(f, &status, rows ? used : 0, out);
    left = rows ? rows - used : left;
    if (job->curve.count > 1 && left >= log_least + CURVE_LEAST + 2) {
        const size_t curve = left - log_least - 3 > CURVE_MOST ? CURVE_MOST : left - log_least - 3;
        top_put_curve(f, job, curve < 5 ? 5 : curve, out);
    }
    CLEANUP(buf_release) struct buf above = {0};
    buf_append(&above, out->data + start, out->len - start);
    used = top_line_count(&above);
    left = rows ? (rows > used ? rows - used : 0) : LOG_MOST + 1;
    if (lines && left > 1)
        top_put_log(f, job, left - 1 > LOG_MOST ? LOG_MOST : left - 1, out);
}
