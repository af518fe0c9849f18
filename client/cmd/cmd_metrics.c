#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "client/cmd/jobs/job_find.h"
#include "client/cmd/usage_table.h"
#include "client/connect.h"
#include "client/export/export_points.h"
#include "client/export/export_source.h"
#include "client/export/export_text.h"
#include "client/reply_json.h"
#include "client/text/format.h"
#include "client/text/plot.h"
#include "client/text/series.h"
#include "client/text/table.h"

struct metrics_options {
    const char *name, *output, *plot;
    int64_t limit;
    bool usage;
};

static const struct option_spec options[] = {
    {.name = "name",
     .letter = 'n',
     .type = OPTION_TEXT,
     .offset = offsetof(struct metrics_options, name),
     .value = "NAME",
     .help = "show this metric only, such as loss or val_acc"},
    {.name = "limit",
     .type = OPTION_INT,
     .offset = offsetof(struct metrics_options, limit),
     .value = "N",
     .help = "show at most the newest N points of each metric and rank"},
    {.name = "usage",
     .type = OPTION_FLAG,
     .offset = offsetof(struct metrics_options, usage),
     .help = "show what the ranks used (CPU, memory, storage, GPUs) in place of what the program reported"},
    {.name = "plot",
     .letter = 'p',
     .type = OPTION_TEXT,
     .offset = offsetof(struct metrics_options, plot),
     .value = "NAME[,NAME]",
     .help = "draw these metrics of all given jobs over the steps: loss,val_loss"},
    {.name = "output",
     .letter = 'o',
     .type = OPTION_CHOICE,
     .offset = offsetof(struct metrics_options, output),
     .value = "table|csv|json",
     .help = "output format",
     .default_text = "table"},
    {0},
};

/* The table: a row for each step, a column for each metric. A cell has the newest value of the lowest rank
 * that reported the metric at that step. If the job has more points than fit into one reply, a column has the lowest rank that
 * reported the metric at all. */
struct grid {
    const char **names; /* borrowed from the points */
    size_t columns, names_cap;
};

/* Metrics that are reported once, or that are for machines. The table leaves them out; -o csv and --name show
 * them. */
static bool metrics_is_hidden(const char *name)
{
    static const char *const aside[] = {
        "parameters", "parameter_bytes",     "gradient_bytes", "optimizer_bytes", "activation_bytes",
        "bytes",      "bytes_per_parameter", "state_bytes",    "digest_high",     "digest_low",
    };
    for (size_t i = 0; i < ARRAY_LEN(aside); i++)
        if (strcmp(name, aside[i]) == 0)
            return true;
    return false;
}

static size_t metrics_column(struct grid *g, const char *name)
{
    for (size_t i = 0; i < g->columns; i++)
        if (strcmp(g->names[i], name) == 0)
            return i;
    g->names = array_grow(g->names, g->columns, &g->names_cap, sizeof(*g->names));
    g->names[g->columns] = name;
    return g->columns++;
}

static int metrics_by_step(const void *left, const void *right)
{
    const Ddp__V1__MetricPoint *a = *(Ddp__V1__MetricPoint *const *)left,
                               *b = *(Ddp__V1__MetricPoint *const *)right;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->time_ms < b->time_ms ? -1 : a->time_ms > b->time_ms;
}

/* A metric's name comes from a worker and may hold control characters. */
static char *metrics_heading(const char *name)
{
    struct buf text = {0};
    term_puts_safe(&text, name);
    return buf_steal(&text);
}

/* Moves the points that the table shows to the front, sorted by step, and returns their number. */
static size_t metrics_sort_points(const Ddp__V1__GetMetricsReply *reply, bool all)
{
    size_t count = 0;
    for (size_t i = 0; i < reply->n_points; i++) {
        Ddp__V1__MetricPoint *point = reply->points[i];
        if (!all && metrics_is_hidden(point->name))
            continue;
        reply->points[i] = reply->points[count];
        reply->points[count++] = point;
    }
    if (count)
        qsort(reply->points, count, sizeof(*reply->points), metrics_by_step);
    return count;
}

/* A narrow terminal leaves out metrics that were first seen late, and those of the training last. */
static int metrics_spare(const char *name, size_t from_end)
{
    static const char *const kept[] = {"epoch", "lr", "val_acc", "val_loss", "loss"};
    for (size_t i = 0; i < ARRAY_LEN(kept); i++)
        if (strcmp(name, kept[i]) == 0)
            return TABLE_LATE + (int)i;
    return from_end < TABLE_LATE ? (int)from_end : TABLE_LATE - 1;
}

static void metrics_print_table(const Ddp__V1__GetMetricsReply *reply, int64_t job, const char *name,
                                bool with_job, struct buf *out)
{
    struct grid g = {0};
    const struct term term = term_of(STDOUT_FILENO);
    const size_t points = metrics_sort_points(reply, name);
    if (!points) {
        CLEANUP(buf_release) struct buf talk = {0};
        buf_printf(&talk, "ddpctl: job %lld has reported no %s%s\n", (long long)job,
                   name ? "metric " : "metrics", name ? name : "");
        stderr_put(&talk);
        return;
    }
    for (size_t i = 0; i < points; i++)
        metrics_column(&g, reply->points[i]->name);
    struct table_column *columns = xcalloc(g.columns + 1, sizeof(*columns));
    columns[0] = (struct table_column){"STEP", true};
    for (size_t c = 0; c < g.columns; c++)
        columns[c + 1] = (struct table_column){metrics_heading(g.names[c]), true,
                                               .spare = metrics_spare(g.names[c], g.columns - c)};
    CLEANUP(table_release) struct table *t = table_new(columns, g.columns + 1);
    const Ddp__V1__MetricPoint **row = xcalloc(g.columns + 1, sizeof(const Ddp__V1__MetricPoint *));
    for (size_t i = 0; i < points;) {
        int64_t step = reply->points[i]->step;
        memset(row, 0, (g.columns + 1) * sizeof(*row));
        for (; i < points && reply->points[i]->step == step; i++) {
            size_t c = metrics_column(&g, reply->points[i]->name);
            /* The points of a step are sorted by rank, then by time: the first rank keeps the cell, and its
             * later value replaces the earlier one. */
            if (!row[c] || row[c]->rank == reply->points[i]->rank)
                row[c] = reply->points[i];
        }
        table_cell(t, STYLE_NONE, text_count(step).text);
        for (size_t c = 0; c < g.columns; c++)
            table_cell(t, STYLE_NONE, row[c] ? fmt_metric(row[c]->value).text : "");
        table_end_row(t);
    }
    if (with_job)
        buf_printf(out, "#%lld\n", (long long)job);
    const size_t left_out = table_print(t, &term, out);
    if (left_out)
        buf_printf(out, "%s more in a wider terminal, with --name or with -o csv\n",
                   text_counted((int64_t)left_out, "metric").text);
    free(row);
    free(g.names);
    table_free(steal(t));
    for (size_t c = 0; c < g.columns; c++)
        free((char *)(uintptr_t)columns[c + 1].heading);
    free(columns);
}

static void metrics_print_csv(const Ddp__V1__GetMetricsReply *reply, int64_t job, bool first, struct buf *out)
{
    const bool terminal = isatty(STDOUT_FILENO);

    if (first)
        buf_puts(out, EXPORT_CSV_HEADER);
    for (size_t i = 0; i < reply->n_points; i++) {
        const Ddp__V1__MetricPoint *p = reply->points[i];
        char value[REAL_TEXT];

        buf_printf(out, "%lld,%lld,%lld,%d,", (long long)job, (long long)p->step, (long long)p->time_ms,
                   p->rank);
        export_put_csv_text(out, p->name, terminal);
        real_text(value, p->value);
        buf_printf(out, ",%s,%d\n", value, export_is_captured(reply, p->name, p->rank));
    }
}

static enum err_code metrics_fetch(struct link *link, const struct metrics_options *o, int64_t job,
                                   bool usage, enum export_ranks ranks, void **reply, struct err *e)
{
    Ddp__V1__GetMetricsRequest request = DDP__V1__GET_METRICS_REQUEST__INIT;
    request.job = job;
    request.limit = o->limit > INT32_MAX ? INT32_MAX : (int32_t)o->limit;
    request.usage = usage;
    if (o->name)
        request.name = (char *)(uintptr_t)o->name;
    return export_get(link, &request, ranks, reply, e);
}

/* In place of the table, if the program has reported nothing or if --usage asks for it. False: there is nothing to show. */
static bool metrics_print_usage(const Ddp__V1__GetMetricsReply *reply, int64_t job, bool with_job,
                                struct buf *out)
{
    CLEANUP(buf_release) struct buf table = {0};
    usage_table_print(reply, &table);
    if (!table.len)
        return false;
    if (with_job)
        buf_printf(out, "#%lld\n", (long long)job);
    buf_puts(out, table.data);
    return true;
}

static enum err_code metrics_show_job(struct link *link, const struct metrics_options *o, int64_t job,
                                      bool first, bool several, struct err *e)
{
    CLEANUP(rpc_release) void *reply = NULL, *usage = NULL;
    CLEANUP(buf_release) struct buf out = {0};
    const bool table = !o->output || strcmp(o->output, "table") == 0;
    const enum export_ranks ranks = table && !o->usage ? EXPORT_LOWEST_RANK : EXPORT_ALL_RANKS;
    if (metrics_fetch(link, o, job, o->usage, ranks, &reply, e) != ERR_OK)
        return e->code;
    if (table && !o->name && !o->usage && !((const Ddp__V1__GetMetricsReply *)reply)->n_points &&
        metrics_fetch(link, o, job, true, EXPORT_ALL_RANKS, &usage, e) != ERR_OK)
        return e->code;
    if (o->output && strcmp(o->output, "csv") == 0)
        metrics_print_csv(reply, job, first, &out);
    else if (o->output && strcmp(o->output, "json") == 0)
        reply_json_metrics(reply, job, &out);
    else if ((!usage && !o->usage) || !metrics_print_usage(usage ? usage : reply, job, several, &out))
        metrics_print_table(reply, job, o->name, several, &out);
    (table ? screen_put : stdout_put)(&out);
    return ERR_OK;
}

static void metrics_free_names(char ***names)
{
    strv_free(*names);
}

static char **metrics_split_names(const char *text)
{
    char **names = NULL;
    while (*text) {
        size_t len = strcspn(text, ",");
        CLEANUP(free_text) char *name = xasprintf("%.*s", (int)len, text);
        if (len)
            names = strv_append(names, name);
        text += len + (text[len] == ',');
    }
    return names;
}

struct curves {
    struct plot_curve *list;
    size_t count;
};

static void metrics_release_curves(struct curves *c)
{
    for (size_t i = 0; i < c->count; i++) {
        free(c->list[i].label);
        series_release(&c->list[i].points);
    }
    free(c->list);
}

static enum err_code metrics_fetch_curve(struct link *link, int64_t job, const char *name, int64_t limit,
                                         struct curves *c, struct err *e)
{
    Ddp__V1__GetMetricsRequest request = DDP__V1__GET_METRICS_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    CLEANUP(buf_release) struct buf label = {0};
    request.job = job;
    request.name = (char *)(uintptr_t)name;
    request.limit = limit > INT32_MAX ? INT32_MAX : (int32_t)limit;
    if (export_get(link, &request, EXPORT_LOWEST_RANK, &reply, e) != ERR_OK)
        return e->code;
    buf_printf(&label, "#%lld ", (long long)job);
    term_puts_safe(&label, name);
    c->list[c->count].label = buf_steal(&label);
    series_take(&c->list[c->count++].points, reply, name);
    return ERR_OK;
}

/* The plot is as wide as the terminal, up to 120 columns; 80 columns in a pipe. */
static void metrics_draw_plot(const struct curves *c)
{
    struct term term = term_of(STDOUT_FILENO);
    CLEANUP(buf_release) struct buf out = {0};
    struct plot p = {.columns = term.columns ? term.columns : 80,
                     .rows = 18,
                     .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
                     .colour = term.colour};
    p.columns = p.columns > 120 ? 120 : p.columns < 30 ? 30 : p.columns;
    plot_draw(&p, c->list, c->count, &out);
    stdout_put(&out);
}

/* A job whose curve cannot be fetched is reported and left out. */
static enum err_code metrics_plot_jobs(struct link *link, const struct invocation *in,
                                       const struct job_numbers *jobs, int *failed, struct err *e)
{
    const struct metrics_options *o = in->options;
    CLEANUP(metrics_free_names) char **names = metrics_split_names(o->plot);
    CLEANUP(metrics_release_curves)
    struct curves c = {.list = xcalloc(jobs->count * (strv_len(names) + 1), sizeof(*c.list))};
    bool any = false;
    for (size_t i = 0; i < jobs->count; i++)
        for (char **name = names; name && *name; name++) {
            if (metrics_fetch_curve(link, jobs->list[i], *name, o->limit, &c, e) != ERR_OK) {
                if (e->code == ERR_UNAVAILABLE)
                    return e->code;
                error_print_keep(e, failed);
                break; /* the next name would fail, too */
            }
            any = any || c.list[c.count - 1].points.count > 0;
        }
    if (!any && *failed != EXIT_DONE)
        return ERR_OK;
    if (!any)
        return err_set(e, ERR_NOT_FOUND, "no job reported '%s'; `ddpctl metrics JOB` lists the metrics",
                       o->plot);
    metrics_draw_plot(&c);
    return ERR_OK;
}

static int cmd_metrics_run(struct invocation *in)
{
    const struct metrics_options *o = in->options;
    struct link link;
    struct err e;
    CLEANUP(job_numbers_release) struct job_numbers jobs = {0};
    int result = EXIT_DONE;
    bool first = true;
    if (link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    enum err_code code = jobs_find(&link, in->args.list, in->args.count, &jobs, &e);
    if (code == ERR_OK && o->plot)
        code = metrics_plot_jobs(&link, in, &jobs, &result, &e);
    if (code != ERR_OK)
        error_print_keep(&e, &result);
    for (size_t i = 0; i < jobs.count && code == ERR_OK && !o->plot; i++)
        if (metrics_show_job(&link, o, jobs.list[i], first, jobs.count > 1, &e) == ERR_OK) {
            first = false;
        } else {
            error_print_keep(&e, &result);
            code = e.code == ERR_UNAVAILABLE ? e.code : code; /* the next job would get the same error */
        }
    link_close(&link);
    return result;
}

const struct command cmd_metrics = {
    .name = "metrics",
    .usage = "metrics JOB... [--name NAME] [--usage] [-o table|csv|json] [--plot NAME,...]",
    .summary = "print or plot the metrics that a job has reported",
    .help =
        "Prints a table of steps and metrics, or with -o csv and -o json every point of every rank. --plot draws\n"
        "curves. For each metric the table shows the lowest rank that reported it. Sizes and digests are not in\n"
        "the table; --name prints them.\n\n"
        "Any process of a job can report metrics: it writes lines such as {\"step\": 10, \"loss\": 1.4} to the file\n"
        "descriptor $DDP_REPORT_FD. If a command reports nothing, ddp reads the metrics from the output of rank 0.\n\n"
        "--usage prints what each rank used: means over the run, and the largest memory. It works for every\n"
        "program. A job without metrics gets this table, too. With -o csv and -o json, `step` is then the number\n"
        "of seconds since the job was submitted.",
    .options = options,
    .size = sizeof(struct metrics_options),
    .least = 1,
    .most = 64,
    .run = cmd_metrics_run,
};
