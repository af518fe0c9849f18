#include "daemon/capture/output_points.h"

#include <stdio.h>
#include <string.h>

#include "daemon/capture/number.h"

#define PATTERN_LINE_NS 20000000 /* CPU time of one line */

/* ---- a pattern */

static void group_put(struct metric_line *line, const char *name, const char *found, size_t len)
{
    char text[64], metric[METRIC_NAME];
    const char *end;
    double value;

    if (!found || len >= sizeof(text))
        return;
    memcpy(text, found, len);
    text[len] = 0;
    if (!number_read(text, &end, &value) || *end || strlen(name) >= METRIC_NAME)
        return;
    memcpy(metric, name, strlen(name) + 1);
    if (strcmp(name, "step") == 0 && number_is_step(value)) {
        line->has_step = true;
        line->step = (int64_t)value;
    } else if (strcmp(name, "step") != 0) {
        metric_line_add(line, metric, value);
    }
}

static void pattern_take(struct output_points *o, const char *text, size_t len)
{
    struct pattern_line line = {0};
    struct metric_line found = {0};
    bool matched = false;
    const char *name, *at;
    struct err e;
    size_t size;

    pattern_line_add(&line, text, len);
    pattern_limit_time(o->pattern, PATTERN_LINE_NS);
    if (pattern_line_end(o->pattern, &line, &matched, &e))
        point_note(o->writer, "capture: %s", e.msg);
    for (size_t i = 0; matched && pattern_group(o->pattern, &line, i, &name, &at, &size); i++)
        group_put(&found, name, at, size);
    pattern_line_release(&line);
    if (matched && !found.has_step) {
        found.has_step = true;
        found.step = ++o->records;
    }
    if (matched)
        (void)point_put(o->writer, &found, o->now_ms);
}

/* ---- the usual shapes */

static int64_t step_of_run(struct output_points *o, const struct shape_values *v)
{
    const int64_t step = v->line.step;

    if (v->total && step < o->last && o->last_total == v->total)
        o->base = o->base < INT64_MAX / 2 ? o->base + o->last_total : 0;
    /* A bar with an epoch, "Epoch 3:", says to which pass the step belongs. */
    if (v->epoch >= 0 && v->total)
        o->base = v->epoch > INT64_MAX / v->total - 1 ? 0 : v->epoch * v->total;
    o->last = step;
    o->last_total = v->total;
    if (v->total && !v->has_epoch)
        o->steps = o->base + v->total;
    else if (v->total && v->epochs && v->epochs < INT64_MAX / v->total)
        o->steps = v->epochs * v->total;
    return o->base + step;
}

/* Adds the number of steps to a point of training when it is new. Returns whether the point was kept. */
static bool stepped_put(struct output_points *o, struct metric_line *line, int64_t steps)
{
    const bool due = line->count && steps && steps != o->steps_said;
    if (due)
        (void)metric_line_add(line, "steps", (double)steps);
    const bool kept = point_put(o->writer, line, o->now_ms);
    if (kept && due)
        o->steps_said = steps;
    return kept;
}

/* Lines without any step are numbered. The first one waits a little: if a line with a step follows, it was an evaluation before the
 * first step. */
static void held_put(struct output_points *o, bool numbered)
{
    if (!o->held.count)
        return;
    o->record_step += numbered;
    o->held.has_step = true;
    o->held.step = o->record_step;
    (void)point_put(o->writer, &o->held, o->now_ms);
    o->held.count = 0;
}

static bool line_is_of_training(const struct metric_line *line)
{
    for (size_t i = 0; i < line->count; i++)
        if (strcmp(line->metrics[i].name, "loss") == 0 || strcmp(line->metrics[i].name, "train_loss") == 0)
            return true;
    return false;
}

/* The step of a line that names none. -1: the line is held. */
static int64_t step_of_unstepped(struct output_points *o, const struct metric_line *line)
{
    const bool training = line_is_of_training(line);

    if (o->stepped)
        return o->record_step;
    if (o->bar_total)
        return o->record_step = o->bar_step > o->record_step ? o->bar_step : o->record_step;
    if (!training && o->trained) /* an evaluation follows the training that it belongs to */
        return o->record_step;
    if (!training && !o->record_step && !o->held.count) {
        o->held = *line;
        o->held_turns = 0;
        return -1;
    }
    held_put(o, !training);
    o->trained |= training;
    return ++o->record_step;
}

static struct metric *line_find(struct metric_line *line, const char *name)
{
    for (size_t i = 0; i < line->count; i++)
        if (strcmp(line->metrics[i].name, name) == 0)
            return &line->metrics[i];
    return NULL;
}

/* If a program prints losses of steps, the loss in "Epoch 3 | avg loss 0.7" is a mean. It must not replace the loss of the last
 * step. A line that has both `loss` and `loss_epoch` needs no change. */
static void mean_rename(struct output_points *o, struct shape_values *v)
{
    struct metric *const loss = line_find(&v->line, "loss");

    if (loss && o->step_losses && !v->line.has_step && v->has_epoch && !line_find(&v->line, "loss_epoch"))
        snprintf(loss->name, sizeof(loss->name), "loss_epoch");
}

static void stepped_take(struct output_points *o, struct shape_values *v)
{
    mean_rename(o, v);
    if (v->line.has_step) {
        o->step_losses |= line_find(&v->line, "loss") != NULL;
        held_put(o, false);
        v->line.step = step_of_run(o, v);
        o->record_step = v->line.step;
        o->stepped = true;
    } else {
        v->line.step = step_of_unstepped(o, &v->line);
    }
    v->line.has_step = true;
    if (v->line.step >= 0)
        (void)stepped_put(o, &v->line, o->steps);
}

static bool bar_is_same(const struct metric_line *a, const struct metric_line *b)
{
    if (a->count != b->count || a->step != b->step)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->metrics[i].name, b->metrics[i].name) != 0 ||
            memcmp(&a->metrics[i].value, &b->metrics[i].value, sizeof(double)) !=
                0) /* NaN is the same as NaN */
            return false;
    return true;
}

static bool name_begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* Whether programs set the metric seldom, and their bars show the value until it is set again. */
static bool metric_is_of_evaluation(const char *name)
{
    const size_t len = strlen(name);

    return name_begins(name, "val") || name_begins(name, "eval") || name_begins(name, "test") ||
           (len > 6 && strcmp(name + len - 6, "_epoch") == 0);
}

/* Returns whether the value differs from the one that a bar showed last, and keeps it. */
static bool evaluation_is_new(struct metric_line *seen, const struct metric *m)
{
    for (size_t i = 0; i < seen->count; i++) {
        if (strcmp(seen->metrics[i].name, m->name) != 0)
            continue;
        const bool same = memcmp(&seen->metrics[i].value, &m->value, sizeof(m->value)) == 0;
        seen->metrics[i].value = m->value;
        return !same;
    }
    metric_line_add(seen, m->name, m->value);
    return true;
}

/* Leaves out results of evaluations that the bar only repeats. */
static void evaluations_filter(struct output_points *o, struct metric_line *line, bool keep_others)
{
    size_t kept = 0;

    for (size_t i = 0; i < line->count; i++)
        if (metric_is_of_evaluation(line->metrics[i].name)
                ? evaluation_is_new(&o->evaluated, &line->metrics[i])
                : keep_others)
            line->metrics[kept++] = line->metrics[i];
    line->count = kept;
}

static void bar_put(struct output_points *o)
{
    struct metric_line line = o->bar;
    const struct metric_line before = o->evaluated;

    if (!o->bar_due)
        return;
    evaluations_filter(o, &line, true);
    if (!stepped_put(o, &line, o->bar_steps))
        o->evaluated = before; /* the next point that is kept has the results */
    o->bar_due = false;
}

/* The values are those of the pass before. Some bars show the result of its evaluation only now. Before the first step it is the
 * result of a trial. */
static void bar_take_start(struct output_points *o, struct metric_line *line)
{
    bar_put(o);
    const struct metric_line before = o->evaluated;
    evaluations_filter(o, line, false);
    if (line->step > 0 && line->count && !point_put(o->writer, line, o->now_ms))
        o->evaluated = before;
}

/* The longest bar counts the steps of lines that name none. */
static void bar_track(struct output_points *o, const struct shape_values *v)
{
    if (v->total < o->bar_total)
        return;
    if (v->total > o->bar_total)
        o->bar_base = 0;
    else if (v->line.step < o->bar_step - o->bar_base) /* the next pass */
        o->bar_base = o->bar_base < INT64_MAX / 2 ? o->bar_base + v->total : 0;
    o->bar_total = v->total;
    o->bar_step = o->bar_base + v->line.step;
}

static void bar_take(struct output_points *o, struct shape_values *v)
{
    bar_track(o, v);
    if (!v->line.count)
        return;
    o->step_losses |= line_find(&v->line, "loss") != NULL;
    const bool of_the_pass_before = v->line.step == 0;
    v->line.step = step_of_run(o, v);
    if (of_the_pass_before) {
        bar_take_start(o, &v->line);
        return;
    }
    if (bar_is_same(&o->bar, &v->line)) /* the bar was only drawn again */
        return;
    if (o->bar.step != v->line.step)
        bar_put(o);
    o->bar = v->line;
    o->bar_due = true;
    o->bar_steps = o->steps;
    o->record_step = v->line.step;
    o->stepped = true;
}

/* A bar of rich may go on in the next lines. Returns whether the line is such a line. */
static bool rich_goes_on(struct output_points *o, const char *text)
{
    const char *column = o->rich.rest && o->rich_stream == o->standard_error ? shape_column(text) : NULL;
    const size_t have = strlen(o->rest);

    if (!column)
        return false;
    snprintf(o->rest + have, sizeof(o->rest) - have, " %s", column);
    struct shape_values v = o->rich;
    shape_rest_read(o->rest, &v);
    bar_take(o, &v);
    return true;
}

static void rich_begin(struct output_points *o, const struct shape_values *v)
{
    o->rich = *v;
    o->rich_stream = o->standard_error;
    o->rest[0] = 0;
    if (v->rest)
        snprintf(o->rest, sizeof(o->rest), "%s", v->rest);
}

static void line_take(void *ctx, char *text, size_t len)
{
    struct output_points *o = ctx;
    struct shape_values v;

    if (o->pattern) {
        if (!o->standard_error)
            pattern_take(o, text, len);
        return;
    }
    if (len > SHAPE_TEXT_MOST)
        text[SHAPE_TEXT_MOST] = 0;
    if (rich_goes_on(o, text))
        return;
    const enum shape shape = shape_read(text, &v);
    rich_begin(o, &v);
    switch (shape) {
    case SHAPE_BAR:
        bar_take(o, &v);
        break;
    case SHAPE_LINE:
        if (!o->standard_error)
            stepped_take(o, &v);
        break;
    case SHAPE_RECORD:
        if (o->standard_error)
            break;
        if (v.line.has_step) {
            stepped_take(o, &v);
            break;
        }
        /* Without a bar the order of the records alone gives their steps, so they need not wait, and all are counted.
         * With a bar, records above the limit are dropped: the bar's step at the end of the turn is that of the last record. */
        if (o->waiting_count == OUTPUT_WAITING_MOST && !o->bar_total)
            output_points_turn(o);
        if (o->waiting_count < OUTPUT_WAITING_MOST)
            o->waiting[o->waiting_count++] = v.line;
        break;
    case SHAPE_NONE:
        break;
    }
}

static bool record_is_of_training(const struct metric_line *line)
{
    for (size_t i = 0; i < line->count; i++)
        if (strcmp(line->metrics[i].name, "loss") == 0)
            return true;
    return false;
}

/* The validation loss that is held comes before the first records of training. Otherwise it has the step of a bar. */
static void held_turn(struct output_points *o, bool training)
{
    const bool bar = o->bar_total && !training;

    if (!o->held.count || (!o->bar_total && !o->waiting_count && ++o->held_turns <= OUTPUT_HELD_TURNS))
        return;
    if (bar && o->bar_step > o->record_step)
        o->record_step = o->bar_step;
    held_put(o, !bar && !training);
}

void output_points_turn(struct output_points *o)
{
    const int64_t from = o->record_step, gained = o->bar_total ? o->bar_step - from : 0;
    size_t training = 0, nth = 0;

    bar_put(o);
    for (size_t i = 0; i < o->waiting_count; i++)
        training += record_is_of_training(&o->waiting[i]);
    held_turn(o, training);
    for (size_t i = 0; i < o->waiting_count; i++) {
        struct metric_line *line = &o->waiting[i];

        /* Records of one turn are spread over the steps that the bar has made; an evaluation belongs to the record before it. */
        if (record_is_of_training(line)) {
            nth++;
            o->trained = true;
            o->record_step = gained > 0 ? from + gained * (int64_t)nth / (int64_t)training
                                        : o->record_step + !o->bar_total;
        } else if (!training && gained > 0) {
            o->record_step = o->bar_step;
        } else if (!o->trained && !o->stepped && !o->bar_total) { /* only evaluations so far */
            o->record_step++;
        }
        line->has_step = true;
        line->step = o->record_step;
        (void)point_put(o->writer, line, o->now_ms);
    }
    o->waiting_count = 0;
}

void output_points_feed(struct output_points *o, bool standard_error, const char *data, size_t len,
                        int64_t now_ms)
{
    o->now_ms = now_ms;
    o->standard_error = standard_error;
    line_cut_feed(&o->streams[standard_error], data, len, line_take, o);
}

void output_points_end(struct output_points *o)
{
    for (int i = 0; i < 2; i++) {
        o->standard_error = i;
        line_cut_end(&o->streams[i], line_take, o);
    }
    held_put(o, true);
    output_points_turn(o);
}

void output_points_release(struct output_points *o)
{
    line_cut_release(&o->streams[0]);
    line_cut_release(&o->streams[1]);
    pattern_free(o->pattern);
}
