#include "client/top/top_view.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "client/job_status.h"
#include "client/screen/screen_parts.h"
#include "client/text/format.h"
#include "client/text/table.h"
#include "client/top/top_job_view.h"

#define COLUMNS_LEAST 40
#define ROWS_LEAST 10
#define GPUS_SHOWN 16 /* of a node */
#define ALL ((size_t)-1)

static const struct table_column node_columns[] = {
    {"NODE", .most = 24},
    {"STATE"},
    {"CPU"},
    {"GPU", .optional = true},
    {"FREE", true},
    {"LOAD", true},
    {"JOBS", .most = 20},
    {"MEMORY", .spare = 1, .optional = true},
};
static const struct table_column job_columns[] = {
    {"JOB", true},
    {"NAME", .most = 24},
    {"STATE"},
    {"NODES", .spare = 2, .most = 24},
    {"PROGRESS", .optional = true},
    {"LOSS", .spare = 4, .optional = true},
    {"SPEED", .spare = 3, .optional = true},
    {"LEFT", true, .optional = true},
    {"STARTS", true, .optional = true},
    {"USER", .spare = 1, .most = 16},
    {"TIME", true},
};

/* ---- totals */

static void top_put_totals(const struct top_frame *f, const struct top_model *m, struct buf *out)
{
    CLEANUP(buf_release) struct buf line = {0};
    const Ddp__V1__ListJobsReply *t = m->totals;
    size_t running = 0, queued = 0;

    for (size_t i = 0; i < m->job_count; i++) {
        running += !job_status_ended(m->jobs[i]) && strcmp(m->jobs[i]->state, "queued") != 0;
        queued += strcmp(m->jobs[i]->state, "queued") == 0;
    }
    if (!t) {
        buf_puts(&line, "waiting for the coordinator");
    } else {
        const int all = t->gpus ? t->gpus : t->slots, busy = t->gpus ? t->gpus_busy : t->slots_busy;
        buf_printf(&line, "%s, %s: %d busy", text_counted(t->nodes, "node").text,
                   text_counted(all, t->gpus ? "GPU" : "CPU slot").text, busy);
        if (t->n_gpus_sick)
            buf_printf(&line, ", %zu sick", t->n_gpus_sick);
        buf_printf(&line, "   %zu running, %zu queued", running, queued);
    }
    buf_printf(&line, "   %s", text_clock(f->term->now_ms, f->term->now_ms, true).text);
    CLEANUP(buf_release) struct buf dressed = {0};
    term_puts(f->term, &dressed, STYLE_BOLD, line.data);
    top_put_line(f, dressed.data, dressed.len, false, out);
}

/* ---- nodes */

/* One character for each GPU: a bar for its load, 'x' if it is sick, '-' if the load is unknown. */
static void top_put_gpus(const Ddp__V1__NodeStatus *node, struct buf *out)
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

    for (size_t i = 0; i < node->n_gpus && i < GPUS_SHOWN; i++) {
        const double load = node->gpus[i]->utilisation;
        const int level = load >= 1 ? 7 : load > 0 ? (int)(load * 8) : 0;
        const char *const shown = screen_node_is_usable(node) ? blocks[level] : "-";
        buf_puts(out, node->gpus[i]->healthy ? shown : "x");
    }
    if (node->n_gpus > GPUS_SHOWN)
        buf_printf(out, "+%zu", node->n_gpus - GPUS_SHOWN);
}

static void top_add_node_row(struct table *t, const Ddp__V1__NodeStatus *node)
{
    CLEANUP(buf_release) struct buf cpu = {0}, gpus = {0}, left = {0}, jobs = {0}, memory = {0};
    const bool usable = screen_node_is_usable(node);

    if (usable)
        buf_printf(&cpu, "%d/%d", node->slots - node->slots_free, node->slots);
    else /* it has no free slots, but that does not mean that they are busy */
        buf_printf(&cpu, "%d c", node->slots);
    top_put_gpus(node, &gpus);
    buf_printf(&left, "%d", !usable ? 0 : node->n_gpus ? node->gpus_free : node->slots_free);
    for (size_t i = 0; i < node->n_jobs && i < 8; i++)
        buf_printf(&jobs, "%s%lld", i ? " " : "", (long long)node->jobs[i]);
    if (usable && node->memory_bytes)
        buf_printf(&memory, "%s", text_bytes(node->memory_bytes - node->memory_free).text);
    table_cell(t, STYLE_NONE, node->name);
    table_cell(t, style_of_state(node->state), node->state);
    table_cell(t, STYLE_NONE, cpu.data);
    table_cell(t, STYLE_NONE, gpus.len ? gpus.data : "");
    table_cell(t, STYLE_NONE, left.data);
    table_cell(t, STYLE_NONE, usable ? fmt_percent(node->load).text : "-");
    table_cell(t, STYLE_NONE, jobs.len ? jobs.data : "");
    table_cell(t, STYLE_NONE, memory.len ? memory.data : "");
    table_end_row(t);
}

static int top_compare_nodes(const void *a, const void *b)
{
    const Ddp__V1__NodeStatus *x = *(Ddp__V1__NodeStatus *const *)a, *y = *(Ddp__V1__NodeStatus *const *)b;
    const bool x_alive = strcmp(x->state, "alive") == 0, y_alive = strcmp(y->state, "alive") == 0;

    return x_alive != y_alive ? x_alive - y_alive : strcmp(x->name, y->name); /* problems first */
}

/* `most` nodes from the first one on. */
static void top_put_nodes(const struct top_frame *f, const struct top_model *m, size_t first, size_t most,
                          struct buf *out)
{
    Ddp__V1__NodeStatus **list = xcalloc(m->node_count + 1, sizeof(*list));
    CLEANUP(table_release) struct table *t = table_new(node_columns, ARRAY_LEN(node_columns));
    CLEANUP(buf_release) struct buf text = {0};

    for (size_t i = 0; i < m->node_count; i++)
        list[i] = m->nodes[i];
    qsort(list, m->node_count, sizeof(*list), top_compare_nodes);
    for (size_t i = first; i < m->node_count && i - first < most; i++)
        top_add_node_row(t, list[i]);
    free(list);
    if (!m->node_count)
        return;
    table_print(t, f->term, &text);
    top_put_lines(f, &text, 0, out);
    if (m->node_count > first + most) {
        CLEANUP(free_text) char *more = xasprintf("and %zu more", m->node_count - first - most);
        top_put_line(f, more, strlen(more), false, out);
    }
}

/* Of the page of jobs: how many nodes it shows. */
static size_t top_nodes_shown(const struct top_frame *f, const struct top_model *m)
{
    const size_t part = f->term->rows / 5 > 2 ? f->term->rows / 5 : 2;

    return !f->term->rows || m->node_count <= part ? m->node_count : part - 1;
}

/* With the heading, what says that there are more, and the blank line. */
static size_t top_nodes_height(const struct top_frame *f, const struct top_model *m)
{
    const size_t shown = top_nodes_shown(f, m);

    return m->node_count ? shown + 2 + (shown < m->node_count) : 0;
}

/* ---- jobs */

static void top_add_job_row(struct table *t, const struct top_frame *f, const Ddp__V1__JobStatus *job)
{
    CLEANUP(buf_release) struct buf nodes = {0}, progress = {0}, speed = {0};
    const double part = job_status_fraction(job);
    const int64_t left = job_status_ended(job) ? -1 : job_status_eta_ms(job);
    const int64_t start = job->start_estimate ? job->start_estimate->start_ms : 0;
    double loss;

    for (size_t i = 0; i < job->n_nodes && i < 2; i++)
        buf_printf(&nodes, "%s%s", i ? "+" : "", job->nodes[i]);
    if (job->n_nodes > 2)
        buf_printf(&nodes, "+%zu", job->n_nodes - 2);
    if (part >= 0 && f->term->live && f->term->columns >= 100)
        buf_printf(&progress, "%s ", fmt_bar(part, 10).text);
    if (part >= 0)
        buf_puts(&progress, fmt_percent(part).text);
    else if (job->progress && job->progress->step)
        buf_puts(&progress, text_count(job->progress->step).text);
    screen_speed(job, &speed);
    table_cell(t, STYLE_NONE, text_id(job->job).text);
    table_cell(t, STYLE_NONE, job->name);
    table_cell(t, style_of_state(job->state), job->state);
    table_cell(t, STYLE_NONE, job->n_nodes ? nodes.data : job->asks);
    table_cell(t, STYLE_NONE, progress.len ? progress.data : "");
    table_cell(t, STYLE_NONE, job_status_metric(job, "loss", &loss) ? fmt_metric(loss).text : "");
    table_cell(t, STYLE_NONE, speed.len && !job_status_ended(job) ? speed.data : "");
    table_cell(t, STYLE_NONE, left >= 0 ? text_duration(left).text : "");
    table_cell(t, STYLE_NONE, start ? text_clock(start, f->term->now_ms, false).text : "");
    table_cell(t, STYLE_NONE, job->user);
    table_cell(t, STYLE_NONE, text_age(job_status_run_ms(job, f->term->now_ms)).text);
    table_end_row(t);
}

/* Marks the row of the selected job, also where there is no reverse, and prints the table's lines. */
static void top_put_job_lines(const struct top_frame *f, const struct buf *text, size_t selected,
                              struct buf *out)
{
    const char *at = text->data;

    for (size_t row = 0; at && *at; row++) { /* row 0 is the heading */
        CLEANUP(buf_release) struct buf line = {0};
        const size_t len = strcspn(at, "\n");
        const bool marked = f->keys && row == selected + 1;
        if (f->keys)
            buf_putc(&line, marked ? '>' : ' ');
        buf_append(&line, at, len);
        top_put_line(f, line.data ? line.data : "", line.len, marked && f->term->live, out);
        at += len + (at[len] == '\n');
    }
}

static void top_put_jobs(const struct top_frame *f, const struct top_model *m, const struct top_state *s,
                         size_t room, struct buf *out)
{
    CLEANUP(table_release) struct table *t = table_new(job_columns, ARRAY_LEN(job_columns));
    CLEANUP(buf_release) struct buf text = {0};
    struct term narrow = *f->term; /* the mark takes a column */
    size_t count, selected = ALL - 1;
    Ddp__V1__JobStatus **list = top_choose(s, m, &count);

    for (size_t i = s->first; i < count && i - s->first < room; i++) {
        top_add_job_row(t, f, list[i]);
        if (list[i]->job == s->selected)
            selected = i - s->first;
    }
    free(list);
    if (narrow.columns && f->keys)
        narrow.columns--;
    table_print(t, &narrow, &text);
    top_put_job_lines(f, &text, selected, out);
    if (!count && m->totals) {
        const char *none = s->filter[0] ? "no job matches the filter" : "no jobs";
        top_put_line(f, none, strlen(none), false, out);
    }
}

size_t top_room(const struct top_frame *f, const struct top_model *m, const struct top_state *s)
{
    const size_t nodes = s->page == TOP_NODES ? 0 : top_nodes_height(f, m);
    const size_t used = 1 + nodes + 1 + 1; /* totals, nodes, heading, keys */

    if (!f->term->rows)
        return ALL / 2;
    return f->term->rows > used ? f->term->rows - used : 1;
}

/* ---- the last line */

static void top_put_prompt(const struct top_frame *f, const struct top_model *m, const struct top_state *s,
                           struct buf *out)
{
    CLEANUP(buf_release) struct buf line = {0}, dressed = {0};
    enum style style = STYLE_DIM;

    if (s->prompt == TOP_ASKS_CANCEL) {
        style = STYLE_BAD;
        term_printf_safe(&line, "cancel job %lld? y: yes, any other key: no", (long long)s->cancels);
    } else if (s->prompt == TOP_FILTERS) {
        style = STYLE_NONE;
        term_printf_safe(&line, "filter: %s_", s->filter);
    } else if (s->message[0] || m->problem) {
        style = STYLE_BAD;
        term_puts_safe(&line, m->problem ? m->problem : s->message);
    } else if (s->page == TOP_JOB) {
        buf_puts(&line, "c cancel  q back");
    } else if (s->page == TOP_NODES) {
        buf_puts(&line, "arrows move  n jobs  q back");
    } else {
        buf_printf(&line, "enter open  / filter  s sort: %s%s  r reverse  n nodes  c cancel  q quit",
                   top_sort_name(s->sort), s->reverse ? ", reverse" : "");
        if (s->filter[0]) {
            buf_puts(&line, "  filter: ");
            term_puts_safe(&line, s->filter);
        }
    }
    term_puts(f->term, &dressed, style, line.data);
    top_put_line(f, dressed.data, dressed.len, false, out);
}

void top_draw(const struct top_frame *f, const struct top_model *m, const struct top_state *s,
              struct buf *out)
{
    const size_t rows = f->term->rows;
    CLEANUP(buf_release) struct buf text = {0};

    if ((rows && rows < ROWS_LEAST) || (f->term->columns && f->term->columns < COLUMNS_LEAST)) {
        const char *small = "the terminal is too small";
        top_put_line(f, small, strlen(small), false, out);
        return;
    }
    if (s->page == TOP_JOB) {
        top_job_draw(f, &m->open, rows ? rows - 1 : 0, &text);
    } else {
        top_put_totals(f, m, &text);
        if (s->page == TOP_NODES) {
            top_put_nodes(f, m, s->first_node, rows > 4 ? rows - 4 : ALL / 2, &text);
        } else {
            top_put_nodes(f, m, 0, top_nodes_shown(f, m), &text);
            if (m->node_count)
                buf_putc(&text, '\n');
            top_put_jobs(f, m, s, top_room(f, m, s), &text);
        }
    }
    const size_t lines = top_put_lines(f, &text, rows && f->keys ? rows - 1 : 0, out);
    for (size_t i = lines; f->keys && i + 1 < rows; i++)
        buf_putc(out, '\n');
    if (f->keys)
        top_put_prompt(f, m, s, out);
}
