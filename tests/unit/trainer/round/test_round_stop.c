/* Which ranks meet within a round, and which of them come there to stop. tests/num/round_stop.py tests the stops themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "trainer/engine/step.h"
#include "trainer/member/sync/strategy.h"
#include "trainer/round/round_stop.h"

#define MS 1000000LL

static void a_rank_with_a_long_rest_of_its_round_stops(void **state)
{
    static const struct {
        int64_t every, every_ms, overlap, made, step_ns;
        enum sync_type type;
        int vote;
        bool wanted;
        int quorum;
    } rows[] = {
        {1000, 0, 0, 0, 2 * MS, SYNC_AVERAGE, TAIL_STOP, true},
        {1000, 0, 0, 0, 2 * MS, SYNC_AVERAGE, TAIL_SIGNAL, true},
        {1000, 0, 0, 0, 2 * MS, SYNC_AVERAGE, TAIL_TUNE, false},
        {1000, 0, 0, 498, 2 * MS, SYNC_AVERAGE, TAIL_STOP, true}, /* 501 steps follow the present one */
        {1000, 0, 0, 499, 2 * MS, SYNC_AVERAGE, TAIL_STOP, false},
        {2, 0, 0, 0, 1001 * MS, SYNC_DILOCO, TAIL_STOP, true},
        {2, 0, 0, 1, 60000 * MS, SYNC_DILOCO, TAIL_STOP, false}, /* the round ends with this step */
        {1, 0, 0, 0, 60000 * MS, SYNC_AVERAGE, TAIL_STOP, false},
        {1000, 0, 1, 0, 60000 * MS, SYNC_DILOCO, TAIL_STOP, false},
        {1000, 3000, 0, 0, 60000 * MS, SYNC_AVERAGE, TAIL_STOP, false},
        {1000, 0, 0, 0, 60000 * MS, SYNC_DILOCO, TAIL_STOP, false, 2},
        {1000, 0, 0, 0, 60000 * MS, SYNC_ALLREDUCE, TAIL_STOP, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct sync sync = {.local_steps = rows[i].type != SYNC_ALLREDUCE,
                            .round = rows[i].every,
                            .state = {.steps = rows[i].made}};
        struct trainer t = {.formation = {.sync = &sync},
                            .sync = {.type = rows[i].type,
                                     .every = rows[i].every,
                                     .every_ms = rows[i].every_ms,
                                     .overlap = rows[i].overlap,
                                     .quorum = rows[i].quorum}};
        struct step s = {.local = 8};
        assert_false(round_stop_wanted(&t, &s, rows[i].step_ns));
        s.tail[rows[i].vote] = 1.0f;
        assert_int_equal(round_stop_wanted(&t, &s, rows[i].step_ns), rows[i].wanted);
    }
}

/* Ranks have made more steps than a smaller `every` says. */
static void a_round_is_at_least_as_long_as_the_newest_rank_has_made_it(void **state)
{
    struct sync sync = {.local_steps = true, .round = 100, .state = {.steps = 200, .least = 900}};

    (void)state;
    assert_int_equal(sync_steps_after_next(&sync), 699);
    sync.state.steps = 900;
    assert_int_equal(sync_steps_after_next(&sync), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_with_a_long_rest_of_its_round_stops),
        cmocka_unit_test(a_round_is_at_least_as_long_as_the_newest_rank_has_made_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
