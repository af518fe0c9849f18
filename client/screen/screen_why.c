#include "client/screen/screen_why.h"

#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "client/diagnose/worker_probe.h"
#include "client/job_status.h"
#include "client/text/format.h"
#include "client/text/table.h"

/* `ddpctl why JOB`: the cause in one sentence, the evidence, a table of the ranks, and what to do. */

static const struct table_column columns[] = {
    {"RANK", false}, {"NODE", false}, {"PID", true},  {"PROCESS", false},  {"STATE", false},
    {"IDLE", true},  {"QUIET", true}, {"STEP", true}, {"WAITS IN", false},
};

static enum style why_style(enum diagnosis_kind kind)
{
    switch (kind) {
    case DIAGNOSIS_RUNNING:
    case DIAGNOSIS_ENDED:
        return STYLE_GOOD;
    case DIAGNOSIS_QUEUED:
    case DIAGNOSIS_STARTING:
    case DIAGNOSIS_RESTARTING:
    case DIAGNOSIS_STOPPING:
    case DIAGNOSIS_SLOW:
    case DIAGNOSIS_LINK:
        return STYLE_WAIT;
    default:
        return STYLE_BAD;
    }
}

static void why_age_cell(struct table *t, int64_t age)
{
    table_cell(t, STYLE_NONE, age >= 1000 ? text_age(age).text : age >= 0 ? "-" : "");
}

static void why_wait_cell(struct table *t, const Ddp__V1__ProcessProbe *p)
{
    CLEANUP(buf_release) struct buf text = {0};
    buf_puts(&text, "");
    if (p && strcmp(p->state, "R") != 0) {
        term_puts_safe(&text, p->waits_in);
        if (*p->waits_for)
            buf_putc(&text, ' ');
        term_puts_safe(&text, p->waits_for);
    }
    table_cell(t, STYLE_NONE, text.data ? text.data : "");
}

static void why_rank_row(struct table *t, const Ddp__V1__WorkerProbe *w, const struct diagnosis *d)
{
    const Ddp__V1__ProcessProbe *p = worker_probe_process(w);
    CLEANUP(buf_release) struct buf text = {0}, name = {0};
    enum style style = d->rank == w && why_style(d->kind) == STYLE_BAD ? STYLE_BAD : STYLE_NONE;
    buf_printf(&text, "%d", w->rank);
    table_cell(t, style, text.data);
    table_cell(t, STYLE_NONE, w->node);
    buf_clear(&text);
    if (w->pid)
        buf_printf(&text, "%lld", (long long)(p ? p->pid : w->pid));
    table_cell(t, STYLE_NONE, text.len ? text.data : "");
    if (p)
        term_puts_safe(&name, p->name);
    table_cell(t, STYLE_NONE, name.len ? name.data : "");
    table_cell(t, style, p ? process_probe_state(p->state) : w->state);
    why_age_cell(t, w->probed ? w->idle_ms : -1);
    why_age_cell(t, w->ended ? -1 : worker_probe_quiet_ms(w));
    table_cell(t, STYLE_NONE, w->step ? text_count(w->step).text : "");
    why_wait_cell(t, p);
    table_end_row(t);
}

/* Prints each line with `before` in front. */
static void why_put_lines(const struct buf *lines, const char *before, struct buf *out)
{
    for (const char *line = lines->data; line && *line;) {
        size_t len = strcspn(line, "\n");
        buf_printf(out, "%s%.*s\n", before, (int)len, line);
        line += len + (line[len] == '\n');
    }
}

/* Commands to copy, so no line is broken inside one. An explanation behind four blanks goes below its command if it does not fit. */
static void why_put_next(const struct buf *lines, const struct term *term, struct buf *out)
{
    for (const char *line = lines->data; line && *line;) {
        const size_t len = strcspn(line, "\n");
        CLEANUP(free_text) char *text = xasprintf("   %.*s", (int)len, line);
        char *explanation = strstr(text + 3, "    ");
        if (explanation && term->live && text_width(text) > term->columns) {
            const size_t start = out->len + (size_t)(explanation - text) + 1;
            *explanation = '\0';
            buf_printf(out, "%s\n      %s\n", text, explanation + 4);
            term_wrap(term, out, start, 6);
        } else {
            buf_printf(out, "%s\n", text);
        }
        line += len + (line[len] == '\n');
    }
}

void screen_why(const Ddp__V1__ProbeJobReply *reply, const struct diagnosis *d, const struct term *term,
                struct buf *out)
{
    const Ddp__V1__JobStatus *job = reply->job;
    const size_t start = out->len;
    bool living = false;
    term_printf_safe(out, "#%lld %s: ", (long long)job->job, job->name);
    term_puts(term, out, why_style(d->kind), d->sentence.data);
    buf_putc(out, '\n');
    if (job_status_put_start(job, term->now_ms, out))
        buf_putc(out, '\n');
    why_put_lines(&d->details, "", out);
    term_wrap(term, out, start, 2);
    for (size_t i = 0; i < reply->n_workers; i++)
        living = living || !reply->workers[i]->ended;
    if (living) {
        CLEANUP(table_release) struct table *t = table_new(columns, ARRAY_LEN(columns));
        for (size_t i = 0; i < reply->n_workers; i++)
            why_rank_row(t, reply->workers[i], d);
        table_print(t, term, out);
    }
    why_put_next(&d->next, term, out);
}
