#include "client/screen/screen_plan.h"

#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "client/text/format.h"
#include "client/text/table.h"

#define BAR_CELLS 10

static const struct plan_way *first_way(const struct plan *p)
{
    const struct plan_way *way = p->ways;
    while (*way->refused && way < p->ways + PLAN_WAYS - 1)
        way++;
    return way;
}

static bool way_fits(const struct plan *p, const struct plan_way *way)
{
    return p->memory <= 0 || way->sizes.sum_bytes <= p->memory;
}

static const struct plan_way *fastest_way(const struct plan *p)
{
    const struct plan_way *best = NULL;
    for (const struct plan_way *way = p->ways; way < p->ways + PLAN_WAYS; way++)
        if (!*way->refused && way_fits(p, way) && (!best || way->step.per_second > best->step.per_second))
            best = way;
    return best;
}

/* 0.84 ms, 85.1 ms, 12.4 s, 3m20s */
static struct text plan_seconds(double s)
{
    struct text out;
    if (s >= 100)
        return text_duration(llround(s * 1e3));
    if (s >= 1)
        snprintf(out.text, sizeof(out.text), "%.*f s", s < 10 ? 2 : 1, s);
    else
        snprintf(out.text, sizeof(out.text), "%.*f ms", s < 0.01 ? 2 : s < 0.1 ? 1 : 0, s * 1e3);
    return out;
}

static void put_heading(const struct plan *p, struct buf *out)
{
    const struct plan_way *way = first_way(p);
    const struct plan_sizes *s = &way->sizes;
    term_puts_safe(out, p->job.name);
    buf_printf(out, ": %s parameters, %s on %s, %s %s a step\n", text_short(s->parameters).text,
               text_counted(p->machine.ranks, "rank").text, text_counted(p->machine.nodes, "node").text,
               text_short(s->samples * (s->tokens > 0 ? s->tokens : 1)).text,
               s->tokens > 0 ? "tokens" : "samples");
    buf_printf(out, "compute: %s\n", p->compute_from);
    if (p->machine.ranks > 1)
        buf_printf(out, "all-reduce of %s: %s", text_bytes((int64_t)(s->arrays * sizeof(float))).text,
                   plan_seconds(way->step.exchange_s).text);
    if (p->machine.nodes > 1)
        buf_printf(out, ", each node's link %sbit/s", text_short(p->machine.link * 8).text);
    if (p->machine.ranks > 1)
        buf_putc(out, '\n');
}

static void put_row(struct table *t, const struct plan *p, const struct plan_way *way)
{
    const struct plan_step *step = &way->step;
    CLEANUP(buf_release) struct buf name = {0}, share = {0};
    term_puts_safe(&name, way->name);
    table_cell(t, STYLE_NONE, name.data);
    if (*way->refused) {
        CLEANUP(buf_release) struct buf why = {0};
        term_puts_safe(&why, way->refused);
        table_span(t, 6, STYLE_DIM, why.data);
        table_end_row(t);
        return;
    }
    table_cell(t, way_fits(p, way) ? STYLE_NONE : STYLE_BAD, text_bytes((int64_t)way->sizes.sum_bytes).text);
    table_cell(t, STYLE_NONE, plan_seconds(step->compute_s).text);
    table_cell(t, STYLE_NONE, plan_seconds(step->exposed_s).text);
    table_cell(t, STYLE_NONE, plan_seconds(step->step_s).text);
    table_cell(t, way == fastest_way(p) ? STYLE_GOOD : STYLE_NONE, text_short(step->per_second).text);
    buf_printf(&share, "%s %s", fmt_bar(step->compute_s / step->step_s, BAR_CELLS).text,
               fmt_percent(step->compute_s / step->step_s).text);
    table_cell(t, STYLE_NONE, share.data);
    table_end_row(t);
}

/* The parts of the memory, the largest strategy-independent ones first. */
static void put_memory(const struct plan *p, struct buf *out)
{
    const struct plan_sizes *s = &first_way(p)->sizes;
    const struct {
        const char *name;
        double bytes;
    } parts[] = {{"parameters", s->parameter_bytes},
                 {"gradients", s->gradient_bytes},
                 {"optimizer", s->optimizer_bytes},
                 {"strategy", s->strategy_bytes},
                 {"activations", s->activation_bytes},
                 {"workspace", s->workspace_bytes},
                 {"batch", s->batch_bytes},
                 {"data", s->data_bytes}};
    buf_printf(out, "memory with %s:", first_way(p)->name);
    for (size_t i = 0, put = 0; i < ARRAY_LEN(parts); i++)
        if (parts[i].bytes > 0)
            buf_printf(out, "%s %s %s", put++ ? "," : "", parts[i].name,
                       text_bytes((int64_t)parts[i].bytes).text);
    buf_putc(out, '\n');
    for (const struct plan_way *way = p->ways; way < p->ways + PLAN_WAYS; way++)
        if (!*way->refused && !way_fits(p, way))
            buf_printf(out, "%s does not fit: a GPU has %s\n", way->name,
                       text_bytes((int64_t)p->memory).text);
}

void screen_plan(const struct plan *p, const struct term *term, struct buf *out)
{
    const bool tokens = first_way(p)->sizes.tokens > 0;
    const struct table_column columns[] = {
        {"STRATEGY", false}, {"MEMORY", true}, {"COMPUTE", true},
        {"EXPOSED", true},   {"STEP", true},   {tokens ? "TOKENS/S" : "SAMPLES/S", true},
        {"COMPUTES", false},
    };
    CLEANUP(table_release) struct table *t = table_new(columns, ARRAY_LEN(columns));
    put_heading(p, out);
    for (size_t i = 0; i < PLAN_WAYS; i++)
        put_row(t, p, &p->ways[i]);
    table_print(t, term, out);
    put_memory(p, out);
}

/* ---- JSON */

static void put_json_way(struct jout *o, const struct plan *p, const struct plan_way *way)
{
    const struct plan_sizes *s = &way->sizes;
    jout_open(o, NULL, '{');
    jout_text(o, "strategy", way->name);
    if (*way->refused) {
        jout_text(o, "refused", way->refused);
        jout_close(o, '}');
        return;
    }
    CLEANUP(buf_release) struct buf sizes = {0};
    plan_sizes_print(s, &sizes);
    jout_bool(o, "fits", way_fits(p, way));
    jout_real(o, "compute_s", way->step.compute_s);
    jout_real(o, "update_s", way->step.update_s);
    jout_real(o, "exchange_s", way->step.exchange_s);
    jout_real(o, "exposed_s", way->step.exposed_s);
    jout_real(o, "step_s", way->step.step_s);
    jout_real(o, s->tokens > 0 ? "tokens_per_s" : "samples_per_s", way->step.per_second);
    jout_raw(o, "sizes", sizes.data);
    jout_close(o, '}');
}

void screen_plan_json(const struct plan *p, struct buf *out)
{
    const struct plan_machine *m = &p->machine;
    struct jout o = {.buf = out};
    jout_open(&o, NULL, '{');
    jout_text(&o, "job", p->job.name);
    jout_int(&o, "ranks", m->ranks);
    jout_int(&o, "nodes", m->nodes);
    jout_bool(&o, "gpu", m->gpu);
    jout_text(&o, "compute_from", p->compute_from);
    jout_real(&o, "rate", m->rate);
    jout_real(&o, "memory_rate", m->memory_rate);
    jout_real(&o, "inside", m->inside);
    jout_real(&o, "link", m->link);
    jout_real(&o, "hop_s", m->hop_s);
    jout_open(&o, "strategies", '[');
    for (size_t i = 0; i < PLAN_WAYS; i++)
        put_json_way(&o, p, &p->ways[i]);
    jout_close(&o, ']');
    jout_close(&o, '}');
    buf_putc(out, '\n');
}
