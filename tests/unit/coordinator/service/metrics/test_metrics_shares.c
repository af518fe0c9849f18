/* Which points are dropped when there are too many: those of the jobs that report most. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "daemon/coordinator/service/metrics/metrics_shares.h"

#define MOST 1000

struct list {
    struct metric_point points[4 * MOST];
    size_t count;
};

static void add_points(struct list *l, int64_t job, const char *name, size_t times)
{
    for (size_t i = 0; i < times; i++) {
        struct metric_point *p = &l->points[l->count];
        *p = (struct metric_point){.job = job, .step = (int64_t)l->count++};
        snprintf(p->metric.name, sizeof p->metric.name, "%s", name);
    }
}

static size_t count_of(const struct list *l, int64_t job, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < l->count; i++)
        n += l->points[i].job == job && !strcmp(l->points[i].metric.name, name);
    return n;
}

static struct list *list_create(void **state)
{
    return *state = xcalloc(1, sizeof(struct list));
}

static int list_free(void **state)
{
    free(*state);
    return 0;
}

static void few_points_stay(void **state)
{
    struct list *l = list_create(state);
    assert_int_equal(metrics_shares_cut(l->points, 0, MOST), 0);
    add_points(l, 1, "loss", MOST);
    assert_int_equal(metrics_shares_cut(l->points, l->count, MOST), MOST);
}

static void a_flood_costs_others_nothing(void **state)
{
    struct list *l = list_create(state);
    add_points(l, 1, "loss", 10);
    add_points(l, 7, "sys.cpu", 5);
    add_points(l, 7, "loss", 3 * MOST);
    add_points(l, 2, "loss", 20);
    l->count = metrics_shares_cut(l->points, l->count, MOST);
    assert_int_equal(l->count, MOST);
    assert_int_equal(count_of(l, 1, "loss"), 10);
    assert_int_equal(count_of(l, 2, "loss"), 20);
    assert_int_equal(count_of(l, 7, "sys.cpu"), 5);
    assert_int_equal(count_of(l, 7, "loss"), MOST - 35);
}

static void the_newest_stay_in_their_order(void **state)
{
    struct list *l = list_create(state);
    for (size_t i = 0; i < 2 * MOST; i++)
        add_points(l, 1 + (int64_t)(i % 2), "loss", 1);
    l->count = metrics_shares_cut(l->points, l->count, MOST);
    assert_int_equal(l->count, MOST);
    for (size_t i = 0; i < MOST; i++)
        assert_int_equal(l->points[i].step, MOST + i);
}

static void more_sources_than_room(void **state)
{
    struct list *l = list_create(state);
    for (int64_t job = 1; job <= 2 * MOST; job++)
        add_points(l, job, "loss", 1);
    assert_true(metrics_shares_cut(l->points, l->count, MOST) <= MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(few_points_stay, list_free),
        cmocka_unit_test_teardown(a_flood_costs_others_nothing, list_free),
        cmocka_unit_test_teardown(the_newest_stay_in_their_order, list_free),
        cmocka_unit_test_teardown(more_sources_than_room, list_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
