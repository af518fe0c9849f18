#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/text/series.h"

static Ddp__V1__MetricPoint points[16];
static Ddp__V1__MetricPoint *list[16];

static void point_add(Ddp__V1__GetMetricsReply *r, const char *name, int64_t step, int rank, int64_t time_ms,
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

static void test_newest_value_of_the_lowest_rank_counts(void **state)
{
    Ddp__V1__GetMetricsReply reply = DDP__V1__GET_METRICS_REPLY__INIT;
    struct series s;
    (void)state;
    point_add(&reply, "loss", 20, 0, 5, 2.0);
    point_add(&reply, "loss", 10, 1, 9, 7.0);
    point_add(&reply, "loss", 10, 0, 3, 3.0);
    point_add(&reply, "lr", 10, 0, 3, 0.1);
    point_add(&reply, "loss", 10, 0, 8, 2.5); /* the step was repeated */
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

static void test_compare_names_the_first_difference(void **state)
{
    int64_t a[] = {0, 10, 20, 30, 40}, b[] = {0, 20, 40, 60};
    double one[] = {1, 2, 3, 4, 5}, same[] = {1, 3, 5, 9}, other[] = {1, 3, 6, 9};
    double zero[] = {0, 0, 0, 4294967295.0, 0};
    struct series high[2] = {series_of(a, one, 5), series_of(b, same, 4)},
                  low[2] = {series_of(a, zero, 5), series_of(b, zero, 3)};
    struct series_difference p;
    CLEANUP(buf_release) struct buf out = {0};
    (void)state;
    series_compare(&p, high, low);
    assert_false(p.differ);
    assert_int_equal(p.compared, 3);
    assert_int_equal(p.last_same, 40);
    series_print_difference(&p, (int64_t[]){7, 9}, &out);
    assert_string_equal(out.data, "#7 and #9 agree to step 40: 3 digests of the parameters\n");
    buf_clear(&out);
    high[1] = series_of(b, other, 4);
    series_compare(&p, high, low);
    assert_true(p.differ);
    assert_int_equal(p.step, 40);
    assert_int_equal(p.last_same, 20);
    series_print_difference(&p, (int64_t[]){7, 9}, &out);
    assert_string_equal(
        out.data, "#7 and #9 differ at step 40: 0000000500000000, 0000000600000000; they agree to step 20\n");
    buf_clear(&out);
    low[1] = series_of(b, (double[]){1, 0, 0}, 3);
    series_compare(&p, high, low);
    assert_int_equal(p.step, 0);
    series_print_difference(&p, (int64_t[]){7, 9}, &out);
    assert_non_null(strstr(out.data, "they never agreed"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newest_value_of_the_lowest_rank_counts),
        cmocka_unit_test(test_compare_names_the_first_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
