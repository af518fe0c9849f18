#include "tests/unit/base/check.h"

#include <string.h>

#include "base/mem.h"
#include "daemon/agent/reconcile.h"
#include "tests/unit/agent/wishes.h"

static bool all_settled(void *ctx, int64_t job)
{
    (void)ctx;
    (void)job;
    return true;
}

static bool none_settled(void *ctx, int64_t job)
{
    (void)ctx;
    (void)job;
    return false;
}

static struct actions run_wish(const Ddp__V1__Wish *wish, const struct spawn_fact *const *known, size_t count)
{
    struct reconcile_input in = {.wish = wish,
                                 .confirmed = true,
                                 .known = known,
                                 .count = count,
                                 .settled = all_settled,
                                 .now = 50000,
                                 .last_ack = 40000};
    struct actions out = {0};

    reconcile_wish(&in, &out);
    return out;
}

static const struct spawn_fact *fact_known(int64_t job, struct spawn_fact *fact, int64_t spawn,
                                           enum spawn_state state)
{
    *fact = (struct spawn_fact){.job = job, .spawn = spawn, .first_generation = 1, .state = state};
    return fact;
}

static void missing_spawns_are_started(void **state)
{
    Ddp__V1__SpawnWish a = spawn_wish(1, 0, 0), b = spawn_wish(2, 1, 0), *spawns[] = {&a, &b};
    Ddp__V1__GroupWish group = group_wish(7, spawns, 2), *groups[] = {&group};
    Ddp__V1__Wish wish = wish_of(1, 1, groups, 1);
    struct spawn_fact fact;
    const struct spawn_fact *there = fact_known(7, &fact, 1, SPAWN_RUNNING);
    CLEANUP(actions_release) struct actions out = run_wish(&wish, &there, 1);

    (void)state;
    assert_int_equal(out.count, 1);
    assert_int_equal(out.items[0].kind, ACTION_START);
    assert_int_equal(out.items[0].spawn, 2);
    assert_ptr_equal(out.items[0].group, &group);
    assert_ptr_equal(out.items[0].wish, &b);
}

static void ended_spawns_are_not_started_again(void **state)
{
    Ddp__V1__SpawnWish a = spawn_wish(1, 0, 0), *spawns[] = {&a};
    Ddp__V1__GroupWish group = group_wish(7, spawns, 1), *groups[] = {&group};
    Ddp__V1__Wish wish = wish_of(1, 1, groups, 1);
    struct spawn_fact fact;
    const struct spawn_fact *ended = fact_known(7, &fact, 1, SPAWN_EXITED);
    CLEANUP(actions_release) struct actions out = run_wish(&wish, &ended, 1);

    (void)state;
    assert_int_equal(out.count, 0);
}

static void answers_come_before_stops(void **state)
{
    Ddp__V1__SpawnAnswer answer = DDP__V1__SPAWN_ANSWER__INIT;
    Ddp__V1__SpawnWish a = spawn_wish(1, 0, DDP__V1__STOP_MODE__STOP_SNAPSHOT), *spawns[] = {&a};
    Ddp__V1__GroupWish group = group_wish(7, spawns, 1), *groups[] = {&group};
    Ddp__V1__Wish wish = wish_of(1, 1, groups, 1);
    struct spawn_fact fact;
    const struct spawn_fact *there = fact_known(7, &fact, 1, SPAWN_RUNNING);

    (void)state;
    a.answer = &answer;
    CLEANUP(actions_release) struct actions out = run_wish(&wish, &there, 1);
    assert_int_equal(out.count, 2);
    assert_int_equal(out.items[0].kind, ACTION_ANSWER);
    assert_ptr_equal(out.items[0].wish, &a);
    assert_int_equal(out.items[1].kind, ACTION_STOP);
    fact.state = SPAWN_EXITED;
    CLEANUP(actions_release) struct actions ended = run_wish(&wish, &there, 1);
    assert_int_equal(ended.count, 0);
}

static void nothing_starts_from_an_unconfirmed_wish(void **state)
{
    Ddp__V1__SpawnWish a = spawn_wish(1, 0, 0), *spawns[] = {&a};
    Ddp__V1__GroupWish group = group_wish(7, spawns, 1), *groups[] = {&group};
    Ddp__V1__Wish wish = wish_of(1, 1, groups, 1);
    struct reconcile_input in = {.wish = &wish, .settled = all_settled, .now = 50000, .last_ack = 40000};
    CLEANUP(actions_release) struct actions out = {0};

    (void)state;
    reconcile_wish(&in, &out); /* kept from an earlier session: its spawns may run elsewhere by now */
    assert_int_equal(out.count, 0);
    in.confirmed = true;
    reconcile_wish(&in, &out);
    assert_int_equal(out.count, 1);
}

static void nothing_starts_without_a_lease_or_before_the_supervisor_has_synced(void **state)
{
    Ddp__V1__SpawnWish a = spawn_wish(1, 0, 0), *spawns[] = {&a};
    Ddp__V1__GroupWish group = group_wish(7, spawns, 1), *groups[] = {&group};
    Ddp__V1__Wish wish = wish_of(1, 1, groups, 1);
    struct reconcile_input in = {
        .wish = &wish, .confirmed = true, .settled = all_settled, .now = 100000, .last_ack = 40001};
    CLEANUP(actions_release) struct actions out = {0};

    (void)state;
    reconcile_wish(&in, &out);
    assert_int_equal(out.count, 1); /* the last moment of the lease */
    actions_release(&out);
    in.last_ack = 40000;
    reconcile_wish(&in, &out);
    in.last_ack = 0; /* no heartbeat was acknowledged yet */
    in.now = 10;
    reconcile_wish(&in, &out);
    in.last_ack = in.now;
    in.settled = none_settled;
    reconcile_wish(&in, &out);
    assert_int_equal(out.count, 0);
}

static void a_wish_that_is_not_on_disk_only_stops(void **state)
{
    Ddp__V1__SpawnWish a = spawn_wish(1, 0, DDP__V1__STOP_MODE__STOP_TERM), b = spawn_wish(2, 1, 0);
    Ddp__V1__SpawnWish *spawns[] = {&a, &b};
    Ddp__V1__GroupWish group = group_wish(7, spawns, 2), *groups[] = {&group};
    Ddp__V1__Wish wish = wish_of(1, 1, groups, 1);
    struct spawn_fact facts[3];
    const struct spawn_fact *known[] = {fact_known(7, &facts[0], 1, SPAWN_RUNNING),
                                        fact_known(7, &facts[1], 3, SPAWN_EXITED),
                                        fact_known(8, &facts[2], 1, SPAWN_RUNNING)};
    struct reconcile_input in = {.wish = &wish,
                                 .confirmed = true,
                                 .unsaved = true,
                                 .known = known,
                                 .count = ARRAY_LEN(known),
                                 .settled = all_settled,
                                 .now = 50000,
                                 .last_ack = 40000};
    CLEANUP(actions_release) struct actions out = {0};

    (void)state;
    reconcile_wish(&in, &out);
    assert_int_equal(out.count, 3); /* spawn 3, which nobody wants any more, is not forgotten */
    assert_true(out.items[0].kind == ACTION_REFUSE && out.items[0].spawn == 2);
    assert_ptr_equal(out.items[0].wish, &b);
    assert_true(out.items[1].kind == ACTION_STOP && out.items[1].job == 7 && out.items[1].mode == STOP_TERM);
    assert_true(out.items[2].kind == ACTION_STOP && out.items[2].job == 8 && out.items[2].mode == STOP_KILL);
}

static void stops_are_passed_on(void **state)
{
    Ddp__V1__SpawnWish a = spawn_wish(1, 0, DDP__V1__STOP_MODE__STOP_SNAPSHOT),
                       b = spawn_wish(2, 1, DDP__V1__STOP_MODE__STOP_TERM), *spawns[] = {&a, &b};
    Ddp__V1__GroupWish group = group_wish(7, spawns, 2), *groups[] = {&group};
    Ddp__V1__Wish wish = wish_of(1, 1, groups, 1);
    struct spawn_fact facts[2];
    const struct spawn_fact *there[] = {fact_known(7, &facts[0], 1, SPAWN_RUNNING),
                                        fact_known(7, &facts[1], 2, SPAWN_STARTING)};
    group.stop_signal = 2;
    CLEANUP(actions_release) struct actions out = run_wish(&wish, there, 2);

    (void)state;
    assert_int_equal(out.count, 2);
    assert_int_equal(out.items[0].signal, 2);
    assert_int_equal(out.items[0].kind, ACTION_STOP);
    assert_int_equal(out.items[0].mode, STOP_SNAPSHOT);
    assert_int_equal(out.items[0].grace_ms, 30000);
    assert_int_equal(out.items[1].mode, STOP_TERM);
}

static void a_stopped_spawn_that_never_started_does_not_start(void **state)
{
    Ddp__V1__SpawnWish a = spawn_wish(1, 0, DDP__V1__STOP_MODE__STOP_TERM), *spawns[] = {&a};
    Ddp__V1__GroupWish group = group_wish(7, spawns, 1), *groups[] = {&group};
    Ddp__V1__Wish wish = wish_of(1, 1, groups, 1);
    CLEANUP(actions_release) struct actions out = run_wish(&wish, NULL, 0);

    (void)state;
    assert_int_equal(out.count, 0);
    assert_false(reconcile_pending(&group, &a));
}

static void a_spawn_to_keep_only_runs_on_and_is_not_started(void **state)
{
    Ddp__V1__SpawnWish a = spawn_wish(1, 0, 0), b = spawn_wish(2, 1, 0), *spawns[] = {&a, &b};
    Ddp__V1__GroupWish group = group_wish(7, spawns, 2), *groups[] = {&group};
    Ddp__V1__Wish wish = wish_of(1, 1, groups, 1);
    struct spawn_fact fact;
    const struct spawn_fact *there = fact_known(7, &fact, 1, SPAWN_RUNNING);

    (void)state;
    a.keep_only = b.keep_only = true;
    CLEANUP(actions_release) struct actions out = run_wish(&wish, &there, 1);
    assert_int_equal(out.count, 0);
    assert_false(reconcile_pending(&group, &b)); /* facts do not call it starting */
}

static void unwanted_spawns_are_killed_or_forgotten(void **state)
{
    Ddp__V1__SpawnWish a = spawn_wish(3, 0, 0), *spawns[] = {&a};
    int64_t wanted[] = {4};
    Ddp__V1__GroupWish group = group_wish(7, spawns, 1), *groups[] = {&group};
    Ddp__V1__Wish wish = wish_of(1, 1, groups, 1);
    struct spawn_fact facts[5];
    const struct spawn_fact *there[] = {
        fact_known(7, &facts[0], 1, SPAWN_RUNNING), fact_known(7, &facts[1], 2, SPAWN_EXITED),
        fact_known(7, &facts[2], 3, SPAWN_EXITED), fact_known(7, &facts[3], 4, SPAWN_EXITED),
        fact_known(8, &facts[4], 3, SPAWN_STOPPING)};
    CLEANUP(actions_release) struct actions out = {0};

    (void)state;
    group.wanted_exits = wanted;
    group.n_wanted_exits = 1;
    out = run_wish(&wish, there, 5);
    assert_int_equal(out.count, 3);
    assert_int_equal(out.items[0].kind, ACTION_STOP);
    assert_int_equal(out.items[0].spawn, 1);
    assert_int_equal(out.items[0].mode, STOP_KILL);
    assert_int_equal(out.items[1].kind, ACTION_FORGET);
    assert_int_equal(out.items[1].spawn, 2);
    assert_int_equal(out.items[2].kind, ACTION_STOP); /* its job is not in the wish */
    assert_int_equal(out.items[2].job, 8);
}

static void without_a_wish_nothing_is_touched(void **state)
{
    struct spawn_fact fact;
    const struct spawn_fact *there = fact_known(7, &fact, 1, SPAWN_EXITED);
    CLEANUP(actions_release) struct actions out = run_wish(NULL, &there, 1);

    (void)state;
    assert_int_equal(out.count, 0);
}

static void starts_come_before_forgets(void **state)
{
    Ddp__V1__SpawnWish b = spawn_wish(2, 0, 0), *spawns[] = {&b};
    Ddp__V1__GroupWish group = group_wish(7, spawns, 1), *groups[] = {&group};
    Ddp__V1__Wish wish = wish_of(1, 1, groups, 1);
    struct spawn_fact fact;
    const struct spawn_fact *there = fact_known(7, &fact, 1, SPAWN_EXITED);
    CLEANUP(actions_release) struct actions out = run_wish(&wish, &there, 1);

    (void)state;
    assert_int_equal(out.count,
                     2); /* the start comes first, so that the supervisor does not end in between */
    assert_int_equal(out.items[0].kind, ACTION_START);
    assert_int_equal(out.items[1].kind, ACTION_FORGET);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_spawns_are_started),
        cmocka_unit_test(ended_spawns_are_not_started_again),
        cmocka_unit_test(answers_come_before_stops),
        cmocka_unit_test(nothing_starts_from_an_unconfirmed_wish),
        cmocka_unit_test(nothing_starts_without_a_lease_or_before_the_supervisor_has_synced),
        cmocka_unit_test(a_wish_that_is_not_on_disk_only_stops),
        cmocka_unit_test(stops_are_passed_on),
        cmocka_unit_test(a_stopped_spawn_that_never_started_does_not_start),
        cmocka_unit_test(a_spawn_to_keep_only_runs_on_and_is_not_started),
        cmocka_unit_test(unwanted_spawns_are_killed_or_forgotten),
        cmocka_unit_test(without_a_wish_nothing_is_touched),
        cmocka_unit_test(starts_come_before_forgets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
