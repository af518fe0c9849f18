#include "base/job/sync_choice.h"

#include <math.h>
#include <string.h>

#include "base/job/job_names.h"
#include "base/job/job_sync.h"
#include "base/mem.h"
#include "base/text.h"

#define EVERY_SHORT 16   /* steps; up to here a finer wire is better than a shorter round */
#define ROUNDS_LEAST 10  /* of a run */
#define HIDDEN_MOST 0.5  /* of a step: what backward can hide of an all-reduce */
#define BUCKET 1048576.0 /* floats; those of the last bucket are ready when backward ends */
#define COMPUTE_LEAST                                                                                        \
    1.0 /* ms; a step does more than its gradients, and shorter times are not measured well */

void sync_choice_base(struct sync_spec *out)
{
    *out = (struct sync_spec){.type = SYNC_DILOCO,
                              .every = 50,
                              .outer_lr = SYNC_OUTER_LR,
                              .outer_momentum = SYNC_OUTER_MOMENTUM,
                              .outer_schedule = OUTER_TRAPEZOID,
                              .wire = WIRE_INT4,
                              .fragments = 1,
                              .mix = 0.5};
}

/* ---- what an exchange takes */

static double compute_ms(const struct sync_facts *f)
{
    return fmax(f->compute_ms, COMPUTE_LEAST);
}

/* One exchange of diloco. fp32 is summed as gradients are. In codes each rank sends as much of its model as all-reduce sends
 * of the gradients, but a node's ranks send theirs one by one, where all-reduce adds them up before. */
static double round_ms(const struct sync_facts *f, enum wire_type wire)
{
    static const double bytes[] = {
        [WIRE_FP32] = 4, [WIRE_BF16] = 2, [WIRE_INT8] = 1 + 2.0 / 64, [WIRE_INT4] = 0.5 + 2.0 / 64};
    double together = wire == WIRE_FP32 || f->nodes < 1 ? 1 : (double)f->world_size / f->nodes;

    return f->allreduce_ms * together * bytes[wire] / bytes[WIRE_FP32];
}

double sync_overlap(double floats, bool beside)
{
    return beside && floats > BUCKET ? 1 - BUCKET / floats : 0;
}

double sync_cost_ms(const struct sync_facts *f, const struct sync_spec *spec)
{
    if (spec->type != SYNC_ALLREDUCE)
        return round_ms(f, spec->wire) / (double)spec->every;
    return f->allreduce_ms - fmin(f->allreduce_ms * f->overlap, compute_ms(f) * HIDDEN_MOST);
}

double sync_speedup(const struct sync_facts *f, const struct sync_spec *spec)
{
    const struct sync_spec allreduce = {.type = SYNC_ALLREDUCE};

    return (compute_ms(f) + sync_cost_ms(f, &allreduce)) / (compute_ms(f) + sync_cost_ms(f, spec));
}

/* ---- the choice */

/* Steps of a round of which an exchange of `ms` takes SYNC_SHARE_MOST of the time. */
static double every_needed(const struct sync_facts *f, double ms)
{
    return ms * (1 - SYNC_SHARE_MOST) / SYNC_SHARE_MOST / compute_ms(f);
}

static int64_t every_round_up(const struct sync_facts *f, double needed)
{
    static const int64_t nice[] = {4, 8, 16, 32, 50, 100, 200, 500};
    size_t i = 0;

    while (i + 1 < ARRAY_LEN(nice) && (double)nice[i] < needed)
        i++;
    while (i > 0 && f->steps > 0 && nice[i] * ROUNDS_LEAST > f->steps)
        i--;
    return nice[i];
}

void sync_choose(const struct sync_facts *f, struct sync_spec *out)
{
    static const enum wire_type wires[] = {WIRE_FP32, WIRE_INT8, WIRE_INT4};
    const struct sync_spec allreduce = {.type = SYNC_ALLREDUCE};
    double cost = sync_cost_ms(f, &allreduce), least = INFINITY;

    *out = allreduce;
    if (f->world_size < 2 || cost <= SYNC_SHARE_MOST * (cost + compute_ms(f)))
        return;
    sync_choice_base(out);
    for (size_t i = 0; i < ARRAY_LEN(wires) && least > EVERY_SHORT; i++) {
        double needed = every_needed(f, round_ms(f, wires[i]));

        if (needed >= least)
            continue;
        least = needed;
        out->wire = wires[i];
    }
    out->every = every_round_up(f, least);
    job_sync_suit_rounds(out, f->steps);
}

/* ---- metrics */

static const double wire_bits[] = {[WIRE_FP32] = 32, [WIRE_BF16] = 16, [WIRE_INT8] = 8, [WIRE_INT4] = 4};

void sync_choice_put(struct metric_line *l, const struct sync_facts *f, const struct sync_spec *spec)
{
    bool rounds = spec->type == SYNC_DILOCO;

    metric_line_add(l, "sync_every", rounds ? (double)spec->every : 1);
    metric_line_add(l, "sync_bits", wire_bits[rounds ? spec->wire : WIRE_FP32]);
    metric_line_add(l, "sync_compute_ms", f->compute_ms);
    metric_line_add(l, "sync_allreduce_ms", f->allreduce_ms);
    metric_line_add(l, "sync_allreduce_bytes", f->bytes);
    metric_line_add(l, "sync_nodes", f->nodes);
    metric_line_add(l, "sync_ranks", f->world_size);
}

static double metric_value(const struct metric_line *l, const char *name)
{
    for (size_t i = 0; i < l->count; i++)
        if (!strcmp(l->metrics[i].name, name) && isfinite(l->metrics[i].value))
            return l->metrics[i].value;
    return 0;
}

static int whole_number(double x)
{
    return x >= 0 && x < 1e9 ? (int)x : 0;
}

bool sync_choice_get(const struct metric_line *l, struct sync_facts *f, struct sync_spec *spec)
{
    double every = metric_value(l, "sync_every");

    if (every < 1)
        return false;
    sync_choice_spec(every, metric_value(l, "sync_bits"), spec);
    *f = (struct sync_facts){.compute_ms = metric_value(l, "sync_compute_ms"),
                             .allreduce_ms = metric_value(l, "sync_allreduce_ms"),
                             .bytes = metric_value(l, "sync_allreduce_bytes"),
                             .nodes = whole_number(metric_value(l, "sync_nodes")),
                             .world_size = whole_number(metric_value(l, "sync_ranks"))};
    return true;
}

void sync_choice_spec(double every, double bits, struct sync_spec *out)
{
    *out = (struct sync_spec){.type = SYNC_ALLREDUCE};
    if (!(every > 1))
        return;
    sync_choice_base(out);
    out->every = whole_number(every);
    for (size_t i = 0; i < ARRAY_LEN(wire_bits); i++)
        if (wire_bits[i] == bits)
            out->wire = (enum wire_type)i;
}

/* ---- text */

void sync_print(struct buf *out, const struct sync_spec *spec)
{
    static const char *const types[] = {[SYNC_ALLREDUCE] = "allreduce",
                                        [SYNC_AVERAGE] = "average",
                                        [SYNC_DILOCO] = "diloco",
                                        [SYNC_AUTO] = "auto"};

    buf_puts(out, types[spec->type]);
    const bool rounds = spec->type == SYNC_AVERAGE || spec->type == SYNC_DILOCO;
    if (rounds && spec->every_ms > 0)
        buf_printf(out, " every %s", text_duration(spec->every_ms).text);
    else if (rounds)
        buf_printf(out, " every %lld", (long long)spec->every);
    if (spec->type == SYNC_DILOCO)
        buf_printf(out, ", wire %s", job_wire_names[spec->wire]);
}

void sync_print_link(struct buf *out, const struct sync_facts *f)
{
    /* What a node sends of the sum around the ring. */
    double bytes = f->bytes * 2 * (f->nodes - 1) / f->nodes;
    double mbit = f->allreduce_ms > 0 ? bytes * 8 / 1e3 / f->allreduce_ms : 0;
    bool giga = mbit >= 1000;

    buf_printf(out, "%.*f %s", giga || mbit < 10 ? 1 : 0, giga ? mbit / 1000 : mbit,
               giga ? "Gbit/s" : "Mbit/s");
}

static void duration_print(struct buf *out, double ms)
{
    if (ms < 1)
        buf_printf(out, "%.2f ms", ms);
    else if (ms < 999.5)
        buf_printf(out, "%.0f ms", ms);
    else
        buf_puts(out, text_duration(llround(ms)).text);
}

void sync_print_choice(struct buf *out, const struct sync_facts *f, const struct sync_spec *spec)
{
    buf_puts(out, "sync auto: ");
    sync_print(out, spec);
    if (f->world_size < 2) {
        buf_puts(out, ": there is one rank");
        return;
    }
    buf_printf(out, ": an all-reduce of %s takes ", text_bytes((int64_t)f->bytes).text);
    duration_print(out, f->allreduce_ms);
    if (f->nodes > 1) {
        buf_puts(out, " on this link (");
        sync_print_link(out, f);
        buf_putc(out, ')');
    }
    buf_puts(out, ", a step computes ");
    duration_print(out, f->compute_ms);
}
