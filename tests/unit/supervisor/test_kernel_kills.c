/* Tests that a kill for want of memory counts for the next seconds only. */
#include "tests/unit/base/check.h"

#include "daemon/supervisor/kernel_kills.h"

static void a_kill_since_the_start_counts(void **state)
{
    struct kernel_kills k;

    (void)state;
    kernel_kills_begin(&k, 23, 1000);
    assert_false(kernel_kills_due(&k, 1000));
    assert_false(kernel_kills_grew(&k, 23));
    assert_true(kernel_kills_grew(&k, 24));
}

static void a_kill_counts_for_at_least_one_time_and_at_most_two(void **state)
{
    struct kernel_kills k;
    int64_t now = 1000;

    (void)state;
    kernel_kills_begin(&k, 23, now);
    while (!kernel_kills_due(&k, now))
        now++;
    kernel_kills_note(&k, 24, now); /* the kill was just before */
    assert_true(kernel_kills_grew(&k, 24));
    const int64_t killed = now;
    while (!kernel_kills_due(&k, now))
        now++;
    assert_true(now - killed >= 1000);
    kernel_kills_note(&k, 24, now);
    assert_false(kernel_kills_grew(&k, 24));
    assert_true(kernel_kills_grew(&k, 25));
}

static void an_unknown_count_accuses_nobody(void **state)
{
    struct kernel_kills k;

    (void)state;
    kernel_kills_begin(&k, -1, 0);
    assert_false(kernel_kills_grew(&k, 23));
    kernel_kills_begin(&k, 23, 0);
    assert_false(kernel_kills_grew(&k, -1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_since_the_start_counts),
        cmocka_unit_test(a_kill_counts_for_at_least_one_time_and_at_most_two),
        cmocka_unit_test(an_unknown_count_accuses_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
