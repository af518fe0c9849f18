#include "client/text/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "client/text/format.h"

#define DOT_COLUMNS 2 /* of a braille character */
#define DOT_ROWS 4
#define COLOURS 6

/* A range of values. The distance of its ticks is 1, 2 or 5 times a power of ten. */
struct axis {
    double low, high, step;
};

/* The area inside the axes. A cell has braille dots and the number of the last curve that was drawn through
 * it. */
struct canvas {
    size_t width, height; /* cells */
    size_t dx, dy;        /* dots of a cell */
    unsigned char *dots, *curve;
    struct axis x, y;
};

/* ---- axes */

/* Beyond these, computing a range or a step would overflow, so larger values are not drawn. */
#define LARGEST 1e300
#define SMALLEST 1e-290

static bool plot_can_draw(double value)
{
    return fabs(value) < LARGEST; /* false for nan */
}

static double axis_nice_step(double span, size_t ticks)
{
    double raw = span / (double)ticks, power = pow(10.0, floor(log10(raw))), part = raw / power;
    return power * (part <= 1.0 ? 1.0 : part <= 2.0 ? 2.0 : part <= 5.0 ? 5.0 : 10.0);
}

static struct axis axis_over(double low, double high, size_t ticks, bool round_out)
{
    struct axis a;
    if (!(high - low > SMALLEST)) {
        double room = fabs(low) < SMALLEST * 100 ? 1.0 : fabs(low) * 0.1;
        low -= round_out ? room : 0.0;
        high += room;
    }
    a.step = axis_nice_step(high - low, ticks);
    a.low = round_out ? floor(low / a.step + 1e-9) * a.step : low;
    a.high = round_out ? ceil(high / a.step - 1e-9) * a.step : high;
    return a;
}

static double axis_tick(const struct axis *a, size_t i)
{
    double at = (ceil(a->low / a->step - 1e-9) + (double)i) * a->step;
    return fabs(at) < a->step * 1e-9 ? 0.0 : at;
}

static size_t axis_place(const struct axis *a, double value, size_t cells)
{
    double at = (value - a->low) / (a->high - a->low) * (double)(cells - 1) + 0.5;
    return at < 0.0 ? 0 : at >= (double)cells ? cells - 1 : (size_t)at;
}

static void canvas_find_range(struct canvas *c, const struct plot_curve *curves, size_t count)
{
    double x[2] = {INFINITY, -INFINITY}, y[2] = {INFINITY, -INFINITY};
    for (size_t k = 0; k < count; k++) {
        const struct series *s = &curves[k].points;
        for (size_t i = 0; i < s->count; i++) {
            if (!plot_can_draw(s->values[i]))
                continue;
            x[0] = fmin(x[0], (double)s->steps[i]);
            x[1] = fmax(x[1], (double)s->steps[i]);
            y[0] = fmin(y[0], s->values[i]);
            y[1] = fmax(y[1], s->values[i]);
        }
    }
    bool any = x[0] <= x[1];
    c->x = axis_over(any ? x[0] : 0.0, any ? x[1] : 1.0, c->width / 12 + 1, false);
    c->y = axis_over(any ? y[0] : 0.0, any ? y[1] : 1.0, c->height / 4 + 1, true);
}

/* ---- drawing */

static void canvas_set_dot(struct canvas *c, size_t x, size_t y, size_t curve)
{
    static const unsigned char bits[DOT_COLUMNS][DOT_ROWS] = {{0x01, 0x02, 0x04, 0x40},
                                                              {0x08, 0x10, 0x20, 0x80}};
    size_t row = c->height * c->dy - 1 - y, cell = row / c->dy * c->width + x / c->dx;
    c->dots[cell] |= bits[x % c->dx][row % c->dy];
    c->curve[cell] = (unsigned char)(curve + 1);
}

/* Sets a dot in every column or in every row between two points, whichever are more. */
static void canvas_draw_line(struct canvas *c, const size_t from[2], const size_t to[2], size_t curve)
{
    double dx = (double)to[0] - (double)from[0], dy = (double)to[1] - (double)from[1];
    size_t steps = (size_t)fmax(fabs(dx), fabs(dy));
    for (size_t i = 0; i <= steps; i++) {
        double t = steps ? (double)i / (double)steps : 0.0;
        canvas_set_dot(c, (size_t)((double)from[0] + t * dx + 0.5), (size_t)((double)from[1] + t * dy + 0.5),
                       curve);
    }
}

static void canvas_draw_curve(struct canvas *c, const struct series *s, size_t curve)
{
    size_t before[2] = {0, 0};
    bool joined = false;
    for (size_t i = 0; i < s->count; i++) {
        if (!plot_can_draw(s->values[i])) {
            joined = false;
            continue;
        }
        size_t at[2] = {axis_place(&c->x, (double)s->steps[i], c->width * c->dx),
                        axis_place(&c->y, s->values[i], c->height * c->dy)};
        canvas_draw_line(c, joined ? before : at, at, curve);
        memcpy(before, at, sizeof(at));
        joined = true;
    }
}

/* ---- printing */

static void plot_put_colour(const struct plot *p, struct buf *out, size_t curve)
{
    static const int codes[COLOURS] = {36, 33, 35, 32, 31, 34};
    if (p->colour)
        buf_printf(out, "\033[%dm", codes[curve % COLOURS]);
}

static void plot_put_mark(const struct plot *p, bool braille, unsigned char dots, size_t curve,
                          struct buf *out)
{
    static const char *const ascii[] = {"*", "o", "+", "x", "#", "@"};
    static const char *const marks[] = {"●", "○", "▲", "△", "■", "□"};
    plot_put_colour(p, out, curve);
    if (!p->utf8)
        buf_puts(out, ascii[curve % COLOURS]);
    else if (!braille)
        buf_puts(out, marks[curve % COLOURS]);
    else
        buf_printf(out, "\xe2%c%c", (char)(0xa0 | dots >> 6), (char)(0x80 | (dots & 0x3f)));
    buf_puts(out, p->colour ? "\033[0m" : "");
}

static void plot_put_row(const struct plot *p, const struct canvas *c, bool braille, size_t row,
                         struct buf *out)
{
    size_t blanks = 0;
    for (size_t x = 0; x < c->width; x++) {
        size_t cell = row * c->width + x;
        if (!c->curve[cell]) {
            blanks++;
            continue;
        }
        buf_printf(out, "%*s", (int)blanks, "");
        blanks = 0;
        plot_put_mark(p, braille, c->dots[cell], (size_t)c->curve[cell] - 1, out);
    }
    buf_putc(out, '\n');
}

/* True if a tick falls on the row; *label is its label. */
static bool canvas_y_label(const struct canvas *c, size_t row, struct text *label)
{
    for (size_t i = 0;; i++) {
        double at = axis_tick(&c->y, i);
        if (at > c->y.high + c->y.step * 1e-6)
            return false;
        if (c->height - 1 - axis_place(&c->y, at, c->height) == row) {
            *label = fmt_metric(at);
            return true;
        }
    }
}

static size_t canvas_y_label_width(const struct canvas *c)
{
    size_t widest = 0;
    struct text label;
    for (size_t row = 0; row < c->height; row++)
        if (canvas_y_label(c, row, &label) && strlen(label.text) > widest)
            widest = strlen(label.text);
    return widest;
}

/* The x axis with its ticks, and the line below with the ticks' steps. */
static void plot_put_x_axis(const struct plot *p, const struct canvas *c, size_t margin, struct buf *out)
{
    CLEANUP(buf_release) struct buf labels = {0};
    size_t at = 0;
    buf_printf(out, "%*s%s", (int)margin, "", p->utf8 ? "└" : "+");
    for (size_t i = 0; axis_tick(&c->x, i) <= c->x.high; i++) {
        double step = axis_tick(&c->x, i);
        struct text label = text_short(step);
        size_t x = axis_place(&c->x, step, c->width), start = margin + 1 + x;
        for (; at < x; at++)
            buf_puts(out, p->utf8 ? "─" : "-");
        buf_puts(out, p->utf8 ? "┬" : "+");
        at = x + 1;
        if (start + strlen(label.text) > p->columns)
            start = p->columns - strlen(label.text);
        if (start >= labels.len)
            buf_printf(&labels, "%*s%s ", (int)(start - labels.len), "", label.text);
    }
    for (; at < c->width; at++)
        buf_puts(out, p->utf8 ? "─" : "-");
    while (labels.len && labels.data[labels.len - 1] == ' ')
        labels.len--;
    buf_printf(out, "\n%.*s\n", (int)labels.len, labels.data ? labels.data : "");
}

static void plot_put_legend(const struct plot *p, bool braille, const struct plot_curve *curves, size_t count,
                            struct buf *out)
{
    for (size_t k = 0; k < count; k++) {
        const struct series *s = &curves[k].points;
        buf_puts(out, k ? "   " : "");
        plot_put_mark(p, braille, 0x36, k, out);
        buf_printf(out, " %s", curves[k].label);
        if (s->count)
            buf_printf(out, " %s", fmt_metric(s->values[s->count - 1]).text);
        else
            buf_puts(out, " (nothing reported)");
    }
    buf_putc(out, '\n');
}

void plot_draw(const struct plot *p, const struct plot_curve *curves, size_t count, struct buf *out)
{
    bool braille = p->utf8 && (count == 1 || p->colour);
    struct canvas c = {.width = p->columns - 10,
                       .height = p->rows - 2,
                       .dx = braille ? DOT_COLUMNS : 1,
                       .dy = braille ? DOT_ROWS : 1};
    struct text label;
    /* The y axis must be known before its labels can be measured, and their width decides the canvas's. */
    canvas_find_range(&c, curves, count);
    size_t margin = canvas_y_label_width(&c) + 1;
    c.width = p->columns - margin - 1;
    c.dots = xcalloc(c.width * c.height, 1);
    c.curve = xcalloc(c.width * c.height, 1);
    for (size_t k = 0; k < count; k++)
        canvas_draw_curve(&c, &curves[k].points, k);
    for (size_t row = 0; row < c.height; row++) {
        bool marked = canvas_y_label(&c, row, &label);
        buf_printf(out, "%*s %s", (int)margin - 1, marked ? label.text : "",
                   p->utf8 ? (marked ? "┤" : "│") : (marked ? "+" : "|"));
        plot_put_row(p, &c, braille, row, out);
    }
    plot_put_x_axis(p, &c, margin, out);
    plot_put_legend(p, braille, curves, count, out);
    free(c.dots);
    free(c.curve);
}
