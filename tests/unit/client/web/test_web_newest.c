/* How many points to ask for in each turn, for jobs that report now and then and for jobs that report often. */
#include "tests/unit/base/check.h"

#include "client/web/web_newest.h"

/* A turn in which each of so many series of the job has so many new points. Returns what was asked for. */
static size_t take_turn(struct web_newest *n, size_t series, size_t new_points)
{
    const size_t limit = (size_t)web_newest_limit(n, series);
    web_newest_learn(n, limit, new_points < limit ? new_points : limit, new_points >= limit);
    return limit;
}

/* Viewers of a job that reports 400 points a second ask for its whole curves in the first turns only. */
static void asks_for_more_until_no_point_is_missing(void **state)
{
    struct web_newest n = {0};
    int tells = 0;
    (void)state;
    for (int i = 0; i < 100; i++) {
        take_turn(&n, 8, 400);
        tells += web_newest_tell(&n, i * 1000);
    }
    assert_int_equal(tells, 2);
    assert_int_equal(web_newest_limit(&n, 8), 512);
    take_turn(&n, 8, 600); /* a turn that took longer */
    assert_true(web_newest_tell(&n, 200000));
    assert_int_equal(web_newest_limit(&n, 8), 2000);
    for (int i = 0; i < 10; i++)
        take_turn(&n, 8, 400);
    assert_false(n.missing);
}

static void asks_for_fewer_when_few_are_new(void **state)
{
    struct web_newest n = {.points = 2048};
    (void)state;
    for (int i = 0; i < 10; i++)
        take_turn(&n, 1, 1);
    assert_int_equal(web_newest_limit(&n, 1), WEB_NEWEST_LEAST);
    assert_int_equal(web_newest_limit(&n, 0), WEB_NEWEST_LEAST);
}

static void asks_for_no_more_than_an_answer_holds(void **state)
{
    struct web_newest n = {0};
    (void)state;
    for (int i = 0; i < 10; i++)
        take_turn(&n, 1, 100000);
    assert_int_equal(web_newest_limit(&n, 1), WEB_NEWEST_MOST);
    assert_int_equal(web_newest_limit(&n, 20), WEB_NEWEST_TOTAL / 20);
    assert_int_equal(web_newest_limit(&n, 100000), 1);
}

/* More series and points than one answer can hold: viewers fill the gaps every ten seconds, not each second. */
static void tells_of_missing_points_now_and_then(void **state)
{
    struct web_newest n = {0};
    int tells = 0;
    (void)state;
    for (int i = 0; i < 104; i++) {
        take_turn(&n, 2000, 100);
        tells += web_newest_tell(&n, i * 1000);
    }
    assert_int_equal(tells, 14);
    take_turn(&n, 2000, 100);
    take_turn(&n, 2000, 0);
    assert_true(web_newest_tell(&n, 200000)); /* the last ones are not forgotten */
    assert_false(web_newest_tell(&n, 300000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asks_for_more_until_no_point_is_missing),
        cmocka_unit_test(asks_for_fewer_when_few_are_new),
        cmocka_unit_test(asks_for_no_more_than_an_answer_holds),
        cmocka_unit_test(tells_of_missing_points_now_and_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
