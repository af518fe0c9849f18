#include "client/screen/screen_check.h"

#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "client/text/table.h"

/* `ddpctl check`: a table of the nodes, a table of the links between them, then the problems with their
 * remedies. */

static const struct table_column node_columns[] = {
    {"NODE", false},
    {"ADDRESS", false},
    {"USER", false, .spare = 2},
    {"CLOCK", true},
    {"MEMORY FREE", true},
    {"DISK FREE", true},
    {"WORKDIR", false},
    {"DATA", false},
    {"INTERPRETER", false},
    {"VERSION", false, .spare = 1},
};
static const struct table_column link_columns[] = {
    {"FROM", false}, {"TO", false}, {"ADDRESS", false}, {"PORTS", false}, {"CONNECT", true}, {"MB/S", true},
};

static void check_cell(struct table *t, bool good, const char *text)
{
    CLEANUP(buf_release) struct buf safe = {0};
    term_puts_safe(&safe, text);
    table_cell(t, good ? STYLE_NONE : STYLE_BAD, safe.data ? safe.data : "");
}

static void check_clock_cell(struct table *t, const Ddp__V1__CheckAnswer *a)
{
    const int64_t skew = a->skew_ms < 0 ? -a->skew_ms : a->skew_ms;
    CLEANUP(buf_release) struct buf text = {0};
    if (skew <= a->trip_ms || skew < 10)
        buf_puts(&text, "ok");
    else
        buf_printf(&text, "%s%s", a->skew_ms < 0 ? "-" : "+", text_duration(skew).text);
    table_cell(t, skew < 1000 + a->trip_ms ? STYLE_NONE : STYLE_BAD, text.data);
}

/* "1.2 GB, 4 files": all paths of the job together. */
static void check_data_cell(struct table *t, const Ddp__V1__CheckPlaceResult *p)
{
    CLEANUP(buf_release) struct buf text = {0};
    int64_t bytes = 0, files = 0;
    bool good = true;
    for (size_t i = 0; i < p->n_paths; i++) {
        bytes += p->paths[i]->bytes;
        files += p->paths[i]->files;
        good = good && !*p->paths[i]->problem;
    }
    if (!p->n_paths)
        buf_puts(&text, "-");
    else if (!good)
        buf_puts(&text, "missing");
    else
        buf_printf(&text, "%s, %s", text_bytes(bytes).text, text_counted(files, "file").text);
    table_cell(t, good ? STYLE_NONE : STYLE_BAD, text.data);
}

static void check_interpreter_cell(struct table *t, const Ddp__V1__CheckPlaceResult *p)
{
    if (*p->interpreter_problem)
        check_cell(t, false, "missing");
    else if (*p->interpreter_version)
        check_cell(t, true, p->interpreter_version);
    else
        check_cell(t, true, *p->interpreter ? p->interpreter : "-");
}

static void check_node_row(struct table *t, const struct preflight *f, size_t i)
{
    const Ddp__V1__CheckAnswer *a = f->places[i];
    const Ddp__V1__CheckPlaceResult *p = a->place;
    check_cell(t, !*a->error, f->nodes[i]->name);
    check_cell(t, true, f->nodes[i]->address);
    if (*a->error || !p) {
        table_span(t, 8, STYLE_BAD, "no answer");
        table_end_row(t);
        return;
    }
    check_cell(t, true, p->user);
    check_clock_cell(t, a);
    table_cell(t, STYLE_NONE, text_bytes(p->memory_free).text);
    table_cell(t, STYLE_NONE, text_bytes(p->disk_free).text);
    if (f->nodes_only)
        check_cell(t, true, "-");
    else
        check_cell(t, !*p->workdir_problem, *p->workdir_problem ? "missing" : "ok");
    check_data_cell(t, p);
    check_interpreter_cell(t, p);
    check_cell(t, true, a->version);
    table_end_row(t);
}

static void check_link_row(struct table *t, const struct preflight *f, size_t from, size_t to)
{
    CLEANUP(buf_release) struct buf ports = {0}, rate = {0}, took = {0};
    const Ddp__V1__CheckAnswer *a = f->links[from];
    bool good = true;
    double bytes = 0, slowest = 0;
    size_t count = 0;
    /* A link has several ports: show all of them, the slowest connect, and the fastest transfer. */
    for (size_t i = 0; a && i < a->n_links; i++) {
        const Ddp__V1__CheckLink *link = a->links[i];
        if (strcmp(link->node, f->nodes[to]->name) != 0)
            continue;
        count++;
        good = good && !*link->problem;
        buf_printf(&ports, "%s%d %s", count > 1 ? ", " : "", link->port, *link->problem ? "closed" : "open");
        bytes = link->bytes_per_s > bytes ? link->bytes_per_s : bytes;
        slowest = link->connect_ms > slowest ? link->connect_ms : slowest;
    }
    if (!count)
        return;
    if (bytes > 0)
        buf_printf(&rate, "%.0f", bytes / 1e6);
    if (slowest > 0)
        buf_printf(&took, "%.1f ms", slowest);
    check_cell(t, true, f->nodes[from]->name);
    check_cell(t, true, f->nodes[to]->name);
    check_cell(t, true, f->nodes[to]->address);
    check_cell(t, good, ports.data);
    table_cell(t, STYLE_NONE, took.data ? took.data : "");
    table_cell(t, STYLE_NONE, rate.data ? rate.data : "");
    table_end_row(t);
}

static void check_put_links(const struct preflight *f, const struct term *term, struct buf *out)
{
    CLEANUP(table_release) struct table *t = table_new(link_columns, ARRAY_LEN(link_columns));
    for (size_t i = 0; i < f->count; i++)
        for (size_t k = 0; k < f->count; k++)
            if (k != i)
                check_link_row(t, f, i, k);
    table_print(t, term, out);
}

void screen_findings(const struct findings *found, const struct term *term, struct buf *out)
{
    /* a finding without a node concerns the job as a whole */
    for (size_t i = 0; i < found->count; i++) {
        CLEANUP(buf_release) struct buf line = {0};
        const struct finding *finding = &found->items[i];
        if (*finding->node)
            term_printf_safe(&line, "%s: ", finding->node);
        term_puts_safe(&line, finding->what);
        term_puts(term, out, STYLE_BAD, line.data);
        buf_putc(out, '\n');
        if (finding->fix) {
            buf_puts(out, "   ");
            term_puts_safe(out, finding->fix);
            buf_putc(out, '\n');
        }
    }
    if (found->count)
        buf_printf(out, "%s\n", text_counted((int64_t)found->count, "problem").text);
    else
        term_puts(term, out, STYLE_GOOD, "no problems found\n");
}

void screen_check(const struct preflight *f, const struct findings *found, const struct term *term,
                  struct buf *out)
{
    CLEANUP(table_release) struct table *t = table_new(node_columns, ARRAY_LEN(node_columns));
    for (size_t i = 0; i < f->count; i++)
        if (f->places[i])
            check_node_row(t, f, i);
    if (f->count)
        table_print(t, term, out);
    if (f->links && f->count > 1)
        check_put_links(f, term, out);
    screen_findings(found, term, out);
}
