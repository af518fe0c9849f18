#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "client/text/plot.h"
#include "tests/unit/client/golden.h"

#define POINTS 200

struct curve {
    int64_t steps[POINTS];
    double values[POINTS];
};

/* A loss that falls as they do, with a hole where it was not a number. */
static struct plot_curve falling(struct curve *c, const char *label, double from, double to, int64_t every)
{
    for (int64_t i = 0; i < POINTS; i++) {
        c->steps[i] = i * every;
        c->values[i] = to + (from - to) * exp(-(double)i / 40.0) + 0.05 * sin((double)i * 1.3);
    }
    c->values[120] = c->values[121] = NAN;
    return (struct plot_curve){(char *)(uintptr_t)label, {c->steps, c->values, POINTS}};
}

static void draw(const char *name, const struct plot *p, const struct plot_curve *curves, size_t count)
{
    CLEANUP(buf_release) struct buf out = {0};
    plot_draw(p, curves, count, &out);
    golden_check(name, &out);
}

static void one_curve_in_dots(void **state)
{
    static struct curve a;
    struct plot_curve curve = falling(&a, "#9 loss", 4.2, 1.4, 25);
    (void)state;
    draw("plot-one.term", &(struct plot){.columns = 72, .rows = 14, .utf8 = true, .colour = true}, &curve, 1);
    draw("plot-one.pipe", &(struct plot){.columns = 72, .rows = 14, .utf8 = true}, &curve, 1);
    draw("plot-one.ascii", &(struct plot){.columns = 72, .rows = 14}, &curve, 1);
}

static void several_are_told_apart(void **state)
{
    static struct curve a, b, c;
    struct plot_curve curves[3] = {falling(&a, "#9 loss", 4.2, 1.4, 25),
                                   falling(&b, "#9 val_loss", 4.3, 1.9, 25),
                                   falling(&c, "#10 loss", 4.2, 2.4, 15)};
    (void)state;
    draw("plot-three.term", &(struct plot){.columns = 72, .rows = 14, .utf8 = true, .colour = true}, curves,
         3);
    draw("plot-three.pipe", &(struct plot){.columns = 72, .rows = 14, .utf8 = true}, curves, 3);
    draw("plot-three.ascii", &(struct plot){.columns = 72, .rows = 14}, curves, 3);
}

/* One point, equal points, nothing at all, nothing finite, a narrow terminal, small and negative numbers. */
static void odd_curves(void **state)
{
    int64_t steps[] = {100, 200, 300};
    double equal[] = {2.5, 2.5, 2.5}, nothing[] = {NAN, INFINITY, NAN}, small[] = {-3e-5, 1e-5, 4e-5};
    struct plot_curve curves[] = {{(char *)(uintptr_t) "#1 loss", {steps, equal, 1}},
                                  {(char *)(uintptr_t) "#1 loss", {steps, equal, 3}},
                                  {(char *)(uintptr_t) "#1 loss", {NULL, NULL, 0}},
                                  {(char *)(uintptr_t) "#1 loss", {steps, nothing, 3}},
                                  {(char *)(uintptr_t) "#1 lr", {steps, small, 3}}};
    struct plot p = {.columns = 30, .rows = 7, .utf8 = true};
    CLEANUP(buf_release) struct buf out = {0};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(curves); i++)
        plot_draw(&p, &curves[i], 1, &out);
    golden_check("plot-odd.pipe", &out);
}

/* What a job may report, and no axis can hold. */
static void values_at_the_edges_of_numbers(void **state)
{
    int64_t steps[] = {1, 2, 3};
    double huge[] = {-1.7e308, 1.0, 1.7e308}, tiny[] = {0.0, 5e-324, 1e-320}, wide[] = {-9e299, 0.0, 9e299};
    double *all[] = {huge, tiny, wide};
    struct plot p = {.columns = 60, .rows = 12};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct plot_curve curve = {(char *)(uintptr_t) "loss", {steps, all[i], 3}};
        CLEANUP(buf_release) struct buf out = {0};
        plot_draw(&p, &curve, 1, &out);
        assert_true(out.len > 0);
    }
}

/* ---- series */

static Ddp__V1__MetricPoint points[16];
static Ddp__V1__MetricPoint *list[16];

static void put(Ddp__V1__GetMetricsReply *r, const char *name, int64_t step, int rank, int64_t time_ms,
                double value)
{
    Ddp__V1__MetricPoint *p = &points[r->n_points];
    ddp__v1__metric_point__init(p);
    *p = (Ddp__V1__MetricPoint){
        .base = p->base, .step = step, .rank = rank, .time_ms = time_ms, .value = value};
    p->name = (char *)(uintptr_t)name;
    list[r->n_points++] = p;
    r->points = list;
}

static void the_newest_of_the_lowest_rank(void **state)
{
    Ddp__V1__GetMetricsReply reply = DDP__V1__GET_METRICS_REPLY__INIT;
    struct series s;
    (void)state;
    put(&reply, "loss", 20, 0, 5, 2.0);
    put(&reply, "loss", 10, 1, 9, 7.0);
    put(&reply, "loss", 10, 0, 3, 3.0);
    put(&reply, "lr", 10, 0, 3, 0.1);
    put(&reply, "loss", 10, 0, 8, 2.5); /* done again */
    series_take(&s, &reply, "loss");
    assert_int_equal(s.count, 2);
    assert_int_equal(s.steps[0], 10);
    assert_true(s.values[0] == 2.5 && s.values[1] == 2.0);
    series_release(&s);
}

static struct series series_of(int64_t *steps, double *values, size_t count)
{
    return (struct series){steps, values, count};
}

static void where_runs_part(void **state)
{
    int64_t a[] = {0, 10, 20, 30, 40}, b[] = {0, 20, 40, 60};
    double one[] = {1, 2, 3, 4, 5}, same[] = {1, 3, 5, 9}, other[] = {1, 3, 6, 9};
    double zero[] = {0, 0, 0, 4294967295.0, 0};
    struct series high[2] = {series_of(a, one, 5), series_of(b, same, 4)},
                  low[2] = {series_of(a, zero, 5), series_of(b, zero, 3)};
    struct parting p;
    CLEANUP(buf_release) struct buf out = {0};
    (void)state;
    series_compare(&p, high, low);
    assert_false(p.parted);
    assert_int_equal(p.compared, 3);
    assert_int_equal(p.last_same, 40);
    series_print_parting(&p, (int64_t[]){7, 9}, &out);
    assert_string_equal(out.data, "#7 and #9 agree to step 40: 3 digests of the parameters\n");
    buf_clear(&out);
    high[1] = series_of(b, other, 4);
    series_compare(&p, high, low);
    assert_true(p.parted);
    assert_int_equal(p.step, 40);
    assert_int_equal(p.last_same, 20);
    series_print_parting(&p, (int64_t[]){7, 9}, &out);
    assert_string_equal(
        out.data, "#7 and #9 differ at step 40: 0000000500000000, 0000000600000000; they agree to step 20\n");
    buf_clear(&out);
    low[1] = series_of(b, (double[]){1, 0, 0}, 3);
    series_compare(&p, high, low);
    assert_int_equal(p.step, 0);
    series_print_parting(&p, (int64_t[]){7, 9}, &out);
    assert_non_null(strstr(out.data, "they never agreed"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_curve_in_dots),
        cmocka_unit_test(several_are_told_apart),
        cmocka_unit_test(odd_curves),
        cmocka_unit_test(values_at_the_edges_of_numbers),
        cmocka_unit_test(the_newest_of_the_lowest_rank),
        cmocka_unit_test(where_runs_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
