#include "tests/unit/base/check.h"

#include "daemon/coordinator/service/logs/log_order.h"

static void the_oldest_comes_first(void **state)
{
    struct log_order o = {0};
    int64_t number = 1, date = INT64_MIN;
    (void)state;
    assert_int_equal(log_order_date(&o), INT64_MAX);
    for (size_t i = 0; i < 500; i++) {
        number = number * 1103515245 % 2147483647;
        log_order_put(&o, (struct log_turn){.date = number % 100, .place = i});
    }
    for (size_t i = 0, place = 0; i < 1000; i++) {
        const int64_t next = log_order_date(&o);
        const struct log_turn turn = log_order_take(&o);
        assert_int_equal(turn.date, next);
        assert_true(turn.date > date || (turn.date == date && turn.place > place));
        date = turn.date;
        place = turn.place;
        if (i < 500) /* it has more data */
            log_order_put(&o, (struct log_turn){.date = turn.date + 1 + (int64_t)place % 7, .place = place});
    }
    assert_int_equal(o.count, 0);
    log_order_release(&o);
}

static void equal_dates_keep_the_order_of_places(void **state)
{
    struct log_order o = {0};
    (void)state;
    for (size_t i = 0; i < 20; i++)
        log_order_put(&o, (struct log_turn){.date = 5, .place = i * 7 % 20});
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(log_order_take(&o).place, i);
    log_order_release(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oldest_comes_first),
        cmocka_unit_test(equal_dates_keep_the_order_of_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
