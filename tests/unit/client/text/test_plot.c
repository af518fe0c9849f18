#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/text/plot.h"
#include "tests/unit/client/golden.h"

#define POINTS 200

struct curve {
    int64_t steps[POINTS];
    double values[POINTS];
};

/* A falling loss with some noise, and with a gap where it is not a number. */
static struct plot_curve falling_curve(struct curve *c, const char *label, double from, double to,
                                       int64_t every)
{
    for (int64_t i = 0; i < POINTS; i++) {
        c->steps[i] = i * every;
        c->values[i] = to + (from - to) * exp(-(double)i / 40.0) + 0.05 * sin((double)i * 1.3);
    }
    c->values[120] = c->values[121] = NAN;
    return (struct plot_curve){(char *)(uintptr_t)label, {c->steps, c->values, POINTS}};
}

static void draw_plot(const char *name, const struct plot *p, const struct plot_curve *curves, size_t count)
{
    CLEANUP(buf_release) struct buf out = {0};
    plot_draw(p, curves, count, &out);
    golden_check(name, &out);
}

static void test_one_curve_is_drawn_in_dots(void **state)
{
    static struct curve a;
    struct plot_curve curve = falling_curve(&a, "#9 loss", 4.2, 1.4, 25);
    (void)state;
    draw_plot("plot-one.term", &(struct plot){.columns = 72, .rows = 14, .utf8 = true, .colour = true},
              &curve, 1);
    draw_plot("plot-one.pipe", &(struct plot){.columns = 72, .rows = 14, .utf8 = true}, &curve, 1);
    draw_plot("plot-one.ascii", &(struct plot){.columns = 72, .rows = 14}, &curve, 1);
}

static void test_several_curves_have_different_marks(void **state)
{
    static struct curve a, b, c;
    struct plot_curve curves[3] = {falling_curve(&a, "#9 loss", 4.2, 1.4, 25),
                                   falling_curve(&b, "#9 val_loss", 4.3, 1.9, 25),
                                   falling_curve(&c, "#10 loss", 4.2, 2.4, 15)};
    (void)state;
    draw_plot("plot-three.term", &(struct plot){.columns = 72, .rows = 14, .utf8 = true, .colour = true},
              curves, 3);
    draw_plot("plot-three.pipe", &(struct plot){.columns = 72, .rows = 14, .utf8 = true}, curves, 3);
    draw_plot("plot-three.ascii", &(struct plot){.columns = 72, .rows = 14}, curves, 3);
}

/* One point, equal points, no points, no finite value, a narrow terminal, small and negative numbers. */
static void test_curves_without_a_range(void **state)
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

/* Values that a job may report but that no axis can show. */
static void test_values_at_the_limits_of_doubles(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_curve_is_drawn_in_dots),
        cmocka_unit_test(test_several_curves_have_different_marks),
        cmocka_unit_test(test_curves_without_a_range),
        cmocka_unit_test(test_values_at_the_limits_of_doubles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
