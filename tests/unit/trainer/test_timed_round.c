/* Rounds of a given time: how many steps fit into one. tests/num/world_sizes.py tests the rounds themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "trainer/timed_round.h"

#define SECOND 1000000000LL

static void steps_that_fit(void **state)
{
    static const struct {
        int64_t steps, ns, every_ms, fit;
    } rows[] = {
        {4, 4 * SECOND, 30000, 30},
        {30, 30 * SECOND, 30000, 30},
        {30, 60 * SECOND, 30000, 15}, /* the last step took long */
        {4, SECOND / 10, 30000, 64},  /* 1,200 would fit, but four steps are a poor measure */
        {4, 400 * SECOND, 30000, 1},  /* a step that takes longer than the round */
        {1, 1, 30000, 16},
        {4, 0, 30000, 64}, /* a clock that stands still */
        {900000, SECOND, 30000, 1000000},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(timed_round_fit(rows[i].steps, rows[i].ns, rows[i].every_ms), rows[i].fit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_that_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
