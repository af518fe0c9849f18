/* Tests the pieces of logs that wait to be passed on in the order of their times. */
#include "tests/unit/base/check.h"

#include <string.h>

#include "daemon/coordinator/service/logs/log_piece.h"

static void add_text(struct log_piece *p, const char *text, const int64_t *bytes, const int64_t *us,
                     size_t count)
{
    log_piece_add(p, text, strlen(text), bytes, us, count);
}

static void expect_next(struct log_piece *p, int64_t until_us, int64_t date, const char *text)
{
    assert_int_equal(log_piece_date(p), date);
    const size_t bytes = log_piece_until(p, until_us);
    assert_int_equal(bytes, strlen(text));
    assert_memory_equal(log_piece_bytes(p), text, bytes);
    log_piece_pass(p, bytes);
}

static void runs_are_passed_up_to_a_time(void **state)
{
    struct log_piece p = {0};

    (void)state;
    add_text(&p, "aabbbc", (const int64_t[]){2, 3, 1}, (const int64_t[]){10, 20, 30}, 3);
    expect_next(&p, 5, 10, "aa"); /* at least one run */
    add_text(&p, "dd", (const int64_t[]){2}, (const int64_t[]){30}, 1);
    expect_next(&p, 29, 20, "bbb");
    expect_next(&p, 30, 30, "cdd");
    assert_int_equal(log_piece_left(&p), 0);
    log_piece_release(&p);
}

/* What an agent sends is not trusted, and an older one sends no runs. */
static void runs_that_do_not_fit_the_data_are_adjusted(void **state)
{
    struct log_piece p = {0};

    (void)state;
    add_text(&p, "abc", NULL, NULL, 0);
    expect_next(&p, 0, 0, "abc");
    add_text(&p, "abc", (const int64_t[]){-1, 0, 2}, (const int64_t[]){5, 6, -7}, 3);
    expect_next(&p, -1, 0, "ab");
    expect_next(&p, -1, 0, "c");
    add_text(&p, "abc", (const int64_t[]){INT64_MAX, 1}, (const int64_t[]){5, 6}, 2);
    expect_next(&p, 0, 5, "abc");
    assert_int_equal(log_piece_left(&p), 0);
    log_piece_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_passed_up_to_a_time),
        cmocka_unit_test(runs_that_do_not_fit_the_data_are_adjusted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
