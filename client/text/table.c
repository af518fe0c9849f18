#include "client/text/table.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "client/text/format.h"

struct cell {
    char *text;
    size_t span; /* 0: covered by the cell to its left */
    enum style style;
};

struct table {
    const struct table_column *columns;
    size_t count;
    struct cell *cells; /* rows * count, by row */
    size_t rows, cap, at;
};

struct table *table_new(const struct table_column *columns, size_t count)
{
    struct table *t = xcalloc(1, sizeof(*t));
    t->columns = columns;
    t->count = count;
    return t;
}

void table_free(struct table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < (t->rows + 1) * t->count && t->cells; i++)
        free(t->cells[i].text);
    free(t->cells);
    free(t);
}

void table_release(struct table **t)
{
    table_free(*t);
}

static struct cell *table_last_row(struct table *t)
{
    if (t->rows + 1 > t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 8;
        t->cells = xrealloc(t->cells, cap * t->count * sizeof(*t->cells));
        memset(t->cells + t->cap * t->count, 0, (cap - t->cap) * t->count * sizeof(*t->cells));
        t->cap = cap;
    }
    return t->cells + t->rows * t->count;
}

void table_span(struct table *t, size_t columns, enum style style, const char *text)
{
    struct cell *row = table_last_row(t);
    struct buf safe = {0};
    BUG_ON(columns == 0 || t->at + columns > t->count);
    term_puts_safe(&safe,
                   text); /* names, paths and reasons may come from users and hold control characters */
    row[t->at] = (struct cell){.text = buf_steal(&safe), .span = columns, .style = style};
    t->at += columns;
}

void table_cell(struct table *t, enum style style, const char *text)
{
    table_span(t, 1, style, text);
}

void table_end_row(struct table *t)
{
    table_last_row(t);
    while (t->at < t->count)
        table_cell(t, STYLE_NONE, "");
    t->rows++;
    t->at = 0;
    table_last_row(t); /* table_free counts on one spare row */
}

/* Columns of a text that is wrapped. Others are left out for it as long as it has less than WRAP_LEAST. */
#define WRAP_LEAST 36
#define WRAP_SMALLEST 16
#define CUT_LEAST 12 /* columns of a text that is cut */

struct layout {
    size_t *widths;
    bool *hidden; /* by column */
};

static size_t table_span_width(const struct layout *l, size_t from, size_t span)
{
    size_t width = 0, shown = 0;
    for (size_t i = from; i < from + span; i++) {
        width += l->hidden[i] ? 0 : l->widths[i];
        shown += !l->hidden[i];
    }
    return shown ? width + 2 * (shown - 1) : 0;
}

/* Widens the last column under a cell that spans several, as far as the line has room. */
static void table_widen_span(const struct layout *l, size_t count, size_t from, const struct cell *cell,
                             size_t limit)
{
    size_t have = table_span_width(l, from, cell->span), want = text_width(cell->text);
    size_t line = table_span_width(l, 0, count), room = limit > line ? limit - line : 0;
    size_t more = want > have ? want - have : 0, last = from + cell->span - 1;
    while (last > from && l->hidden[last])
        last--;
    l->widths[last] += limit && more > room ? room : more;
}

/* The columns by which a line is too wide. A left-aligned last column, of notes, may exceed the width. */
static size_t table_excess(const struct table *t, size_t limit, const struct layout *l)
{
    const size_t last = t->count - 1;
    const bool fixed = t->columns[last].right || t->columns[last].wrap;
    const size_t note = fixed ? 0 : l->widths[last] - text_width(t->columns[last].heading);
    const size_t line = table_span_width(l, 0, t->count) - note;
    return limit && line > limit ? line - limit : 0;
}

/* Hides columns whose number is below `end` until a line fits. */
static void table_hide_columns(const struct table *t, size_t limit, const struct layout *l, int end)
{
    while (table_excess(t, limit, l)) {
        size_t next = t->count;
        for (size_t c = 0; c < t->count; c++)
            if (t->columns[c].spare && t->columns[c].spare < end && !l->hidden[c] &&
                (next == t->count || t->columns[c].spare < t->columns[next].spare))
                next = c;
        if (next == t->count)
            return;
        l->hidden[next] = true;
    }
}

static bool table_is_blank(const struct table *t, size_t column)
{
    for (size_t r = 0; r < t->rows; r++)
        if (t->cells[r * t->count + column].span != 1 || *t->cells[r * t->count + column].text)
            return false;
    return true;
}

/* Narrows the wrapped column, and then those whose cells may be cut. */
static void table_narrow_columns(const struct table *t, size_t limit, const struct layout *l)
{
    const size_t last = t->count - 1;
    if (t->columns[last].wrap && l->widths[last] > WRAP_SMALLEST && table_excess(t, limit, l))
        l->widths[last] = WRAP_SMALLEST;
    for (size_t c = 0; c < t->count; c++) {
        const size_t excess = table_excess(t, limit, l);
        if (!excess || !t->columns[c].most || l->hidden[c] || l->widths[c] <= CUT_LEAST)
            continue;
        l->widths[c] -= excess < l->widths[c] - CUT_LEAST ? excess : l->widths[c] - CUT_LEAST;
    }
}

/* The wrapped column gets what is left of the line, even if that is less than it wants. */
static void table_fit_wrapped(const struct table *t, size_t limit, const struct layout *l)
{
    const size_t last = t->count - 1;
    if (!limit || !t->columns[last].wrap || l->hidden[last])
        return;
    const size_t others = table_span_width(l, 0, t->count) - l->widths[last];
    l->widths[last] = limit > others + WRAP_SMALLEST ? limit - others : WRAP_SMALLEST;
}

static void table_measure(const struct table *t, size_t limit, const struct layout *l)
{
    for (size_t c = 0; c < t->count; c++)
        l->widths[c] = text_width(t->columns[c].heading);
    for (size_t i = 0; i < t->rows * t->count; i++)
        if (t->cells[i].span == 1 && text_width(t->cells[i].text) > l->widths[i % t->count])
            l->widths[i % t->count] = text_width(t->cells[i].text);
    for (size_t c = 0; c < t->count; c++) {
        const struct table_column *column = &t->columns[c];
        const size_t most = column->wrap ? WRAP_LEAST : column->most;
        l->hidden[c] = column->optional && table_is_blank(t, c);
        if (limit && most && l->widths[c] > most)
            l->widths[c] = most;
    }
    table_hide_columns(t, limit, l, TABLE_LATE);
    table_narrow_columns(t, limit, l);
    table_hide_columns(t, limit, l, INT_MAX);
    table_fit_wrapped(t, limit, l);
    for (size_t i = 0; i < t->rows * t->count; i++) {
        const struct cell *cell = &t->cells[i];
        size_t from = i % t->count;
        if (cell->span > 1 && from + cell->span < t->count)
            table_widen_span(l, t->count, from, cell, limit);
    }
}

/* Prints a cell after the blanks that are owed. Blanks behind a cell are only added to *owed, so that a line
 * never ends with blanks. */
static void table_put_cell(struct buf *out, const struct term *term, const struct cell *cell, size_t width,
                           bool right, size_t *owed)
{
    CLEANUP(buf_release) struct buf text = {0};
    if (text_width(cell->text) > width && width)
        buf_printf(&text, "%.*s…", (int)text_clip(cell->text, width - 1), cell->text);
    else
        buf_puts(&text, cell->text);
    const size_t used = text_width(text.data), pad = width > used ? width - used : 0;
    if (used) {
        *owed += right ? pad : 0;
        buf_printf(out, "%*s", (int)*owed, "");
        term_puts(term, out, cell->style, text.data);
        *owed = right ? 0 : pad;
    } else {
        *owed += width;
    }
    *owed += 2;
}

/* A cell that spans up to the last column takes as much room as its text: nothing comes after it. */
static size_t table_cell_width(const struct table *t, const struct cell *cell, const struct layout *l,
                               size_t from)
{
    size_t width = table_span_width(l, from, cell->span), own = text_width(cell->text);
    return from + cell->span == t->count && own > width ? own : width;
}

/* The length in bytes of the first line of a text that is broken between words. */
static size_t text_first_line(const char *text, size_t columns)
{
    const size_t most = text_clip(text, columns);
    size_t end = most;
    if (!text[most])
        return most;
    while (end && text[end] != ' ')
        end--;
    return end ? end : most; /* a word that is longer than the line is broken */
}

static void table_put_wrapped(struct buf *out, const struct term *term, const struct cell *cell, size_t width,
                              size_t indent, size_t *owed)
{
    for (const char *rest = cell->text; *rest;) {
        const size_t len = text_first_line(rest, width);
        CLEANUP(free_text) char *line = xasprintf("%.*s", (int)len, rest);
        table_put_cell(out, term, &(struct cell){.text = line, .span = 1, .style = cell->style}, width, false,
                       owed);
        rest += len;
        rest += strspn(rest, " ");
        if (*rest)
            buf_putc(out, '\n');
        *owed = indent;
    }
}

static void table_print_row(const struct table *t, const struct cell *row, const struct layout *l,
                            const struct term *term, struct buf *out)
{
    size_t owed = 0;
    for (size_t c = 0; c < t->count; c += row[c].span ? row[c].span : 1)
        if (row[c].span == 1 && t->columns[c].wrap && term->columns && !l->hidden[c])
            table_put_wrapped(out, term, &row[c], l->widths[c], table_span_width(l, 0, c) + 2, &owed);
        else if (row[c].span > 1 || !l->hidden[c])
            table_put_cell(out, term, &row[c], table_cell_width(t, &row[c], l, c),
                           t->columns[c].right && row[c].span == 1, &owed);
    buf_putc(out, '\n');
}

size_t table_print(const struct table *t, const struct term *term, struct buf *out)
{
    size_t left_out = 0;
    struct layout l = {.widths = xcalloc(t->count, sizeof(*l.widths)),
                       .hidden = xcalloc(t->count, sizeof(*l.hidden))};
    struct cell *heads = xcalloc(t->count, sizeof(*heads));
    table_measure(t, term->live ? term->columns : 0, &l);
    for (size_t c = 0; c < t->count; c++)
        heads[c] = (struct cell){.text = xstrdup(t->columns[c].heading), .span = 1, .style = STYLE_BOLD};
    table_print_row(t, heads, &l, term, out);
    for (size_t r = 0; r < t->rows; r++)
        table_print_row(t, t->cells + r * t->count, &l, term, out);
    for (size_t c = 0; c < t->count; c++) {
        free(heads[c].text);
        left_out += l.hidden[c] && !(t->columns[c].optional && table_is_blank(t, c));
    }
    free(heads);
    free(l.widths);
    free(l.hidden);
    return left_out;
}
