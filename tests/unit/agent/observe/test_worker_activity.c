#include "tests/unit/base/check.h"

#include "base/mem.h"
#include "daemon/agent/observe/worker_activity.h"

#define WALL 1000000 /* the wall clock is this much ahead of the boot clock */

static void activity_sample(struct worker_activity *a, int64_t at, int64_t cpu_ms, char stuck,
                            int64_t output_at)
{
    struct worker_sample s = {.there = true, .stuck = stuck, .cpu_ms = cpu_ms};

    s.output_ms = output_at ? output_at + WALL : 0;
    worker_activity_update(a, &s, at);
}

static Ddp__V1__SpawnActivity activity_told(struct worker_activity *a, int64_t stall_ms, int64_t now,
                                            bool *news)
{
    Ddp__V1__SpawnActivity out;

    *news = worker_activity_tell(a, stall_ms, now, now + WALL, &out);
    if (*news)
        worker_activity_sent(a, &out, now);
    return out;
}

static void a_worker_is_idle_after_a_while_without_cpu_time(void **state)
{
    struct worker_activity a = {0};
    bool news;

    (void)state;
    activity_sample(&a, 1000, 500, 0, 1000);
    activity_sample(&a, 2000, 501, 0, 2000); /* 0.1 % of a CPU counts as idle */
    assert_int_equal(activity_told(&a, 0, 2000, &news).idle_ms, -1);
    assert_false(news);
    assert_int_equal(activity_told(&a, 0, 2500, &news).idle_ms, 1500);
    assert_true(news);
    activity_sample(&a, 3000, 502, 0, 3000);
    (void)activity_told(&a, 0, 3000, &news); /* still idle since the same time */
    assert_false(news);
    activity_sample(&a, 4000, 530, 0, 4000); /* 2.8 % of a CPU counts as busy */
    assert_int_equal(activity_told(&a, 0, 4000, &news).idle_ms, -1);
    assert_true(news);
}

static void a_worker_is_stuck_only_while_it_is_idle(void **state)
{
    struct worker_activity a = {0};
    bool news;

    (void)state;
    activity_sample(&a, 1000, 0, 'D', 1000);
    assert_string_equal(activity_told(&a, 0, 1000, &news).state, "");
    activity_sample(&a, 3000, 0, 'D', 3000);
    assert_string_equal(activity_told(&a, 0, 3000, &news).state, "D");
    activity_sample(&a, 4000, 0, 'T', 4000);
    assert_string_equal(activity_told(&a, 0, 4000, &news).state, "T");
    assert_true(news);
}

static void what_an_idle_worker_waits_in_is_told(void **state)
{
    struct worker_sample s = {.there = true,
                              .wait = true,
                              .own_wait = 3,
                              .call = "nanosleep",
                              .target = "pipe",
                              .stack = "hrtimer_nanosleep, do_syscall_64"};
    struct worker_activity a = {0};
    Ddp__V1__SpawnActivity told;
    bool news;

    (void)state;
    worker_activity_update(&a, &s, 1000);
    assert_false(worker_activity_dozes(&a, 1500));
    assert_true(worker_activity_dozes(&a, 2000));
    told = activity_told(&a, 0, 1000, &news);
    assert_true(told.own_wait == 0 && !*told.waits_in && !*told.waits_for &&
                !*told.stack); /* it is not idle yet */
    told = activity_told(&a, 0, 3000, &news);
    assert_int_equal(told.own_wait, 3);
    assert_string_equal(told.waits_in, "nanosleep");
    assert_string_equal(told.waits_for, "pipe");
    assert_string_equal(told.stack, "hrtimer_nanosleep, do_syscall_64");
    s.own_wait = 0;
    worker_activity_update(&a, &s, 4000);
    assert_int_equal(activity_told(&a, 0, 4000, &news).own_wait, 0);
    assert_true(news);
}

static void silence_ends_with_output_or_a_report(void **state)
{
    struct worker_activity a = {0};
    bool news;

    (void)state;
    activity_sample(&a, 1000, 1, 0, 1000);
    assert_int_equal(activity_told(&a, 0, 30999, &news).silent_ms, -1);
    assert_int_equal(activity_told(&a, 0, 31000, &news).silent_ms, 30000);
    a.report_at = 31000;
    assert_int_equal(activity_told(&a, 0, 31500, &news).silent_ms, -1);
    assert_true(news);
}

/* Ranks that wait are told from a rank that computes by how much CPU time they use. */
static void what_a_silent_worker_uses_is_told(void **state)
{
    struct worker_activity a = {0};
    bool news;

    (void)state;
    activity_sample(&a, 1000, 1, 0, 1000);
    activity_sample(&a, 2000, 31, 0, 1000);
    assert_int_equal(activity_told(&a, 10000, 2000, &news).cpu_permille, 0); /* it is not silent yet */
    activity_sample(&a, 7000, 181, 0, 1000);
    assert_int_equal(activity_told(&a, 10000, 7000, &news).cpu_permille, 30);
    activity_sample(&a, 8000, 231, 0, 1000);
    assert_int_equal(activity_told(&a, 10000, 8000, &news).cpu_permille, 50);
    assert_false(news);
    activity_sample(&a, 9000, 1031, 0, 1000);
    assert_int_equal(activity_told(&a, 10000, 9000, &news).cpu_permille, 800);
    assert_false(news); /* the last message is less than a quarter of stall_timeout old */
    activity_sample(&a, 10000, 1831, 0, 1000);
    assert_int_equal(activity_told(&a, 10000, 10000, &news).cpu_permille, 800);
    assert_true(news);
}

/* To the coordinator, a rank computes if it uses a quarter of a core. So the agent reports even small changes across this limit. */
static void a_worker_that_crosses_a_quarter_of_a_core_is_told(void **state)
{
    static const struct {
        int permille;
        bool told;
    } rows[] = {{50, true}, {249, false}, {250, true}, {300, false}, {249, true}, {100, false}, {260, true}};
    struct worker_activity a = {0};
    int64_t at = 7000, cpu_ms = 1;
    bool news;

    (void)state;
    activity_sample(&a, 1000, cpu_ms, 0, 1000);
    activity_sample(&a, at - 1000, cpu_ms += 10, 0, 1000);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++, at += 3000) { /* more than a quarter of stall_timeout */
        activity_sample(&a, at - 1000, cpu_ms, 0, 1000);
        activity_sample(&a, at, cpu_ms += rows[i].permille, 0, 1000);
        assert_int_equal(activity_told(&a, 10000, at, &news).cpu_permille, rows[i].permille);
        assert_int_equal(news, rows[i].told);
    }
}

/* Threads of a silent worker compute now and then. Each message costs the coordinator a look at all jobs. */
static void a_worker_that_uses_more_and_less_is_told_seldom(void **state)
{
    struct worker_activity a = {0};
    int64_t cpu_ms = 1;
    int told = 0;
    bool news;

    (void)state;
    activity_sample(&a, 1000, cpu_ms, 0, 1000);
    for (int64_t at = 2000; at <= 101000; at += 1000) {
        cpu_ms += at / 1000 % 2 ? 4000 : 1200; /* less than four times */
        activity_sample(&a, at, cpu_ms, 0, 1000);
        (void)activity_told(&a, 80000, at, &news);
        told += news;
    }
    assert_int_equal(told, 1); /* that it is silent */
    for (int64_t at = 102000; at <= 201000; at += 1000) {
        cpu_ms += at / 3000 % 2 ? 4000 : 30;
        activity_sample(&a, at, cpu_ms, 0, 1000);
        (void)activity_told(&a, 80000, at, &news);
        told += news;
    }
    assert_true(told > 5 && told <= 1 + 100 / 5);
}

static void a_message_for_another_worker_tells_of_this_one_too(void **state)
{
    struct worker_activity a = {0};
    Ddp__V1__SpawnActivity said;
    bool news;

    (void)state;
    activity_sample(&a, 1000, 1, 0, 1000);
    activity_sample(&a, 6000, 151, 0, 1000);
    assert_int_equal(activity_told(&a, 10000, 6000, &news).cpu_permille, 30);
    activity_sample(&a, 8000, 1951, 0, 1000);
    said = activity_told(&a, 10000, 8000, &news);
    assert_false(news);
    worker_activity_sent(&a, &said, 8000);
    activity_sample(&a, 11000, 4651, 0, 1000);
    assert_int_equal(activity_told(&a, 10000, 11000, &news).cpu_permille, 900);
    assert_false(news);
}

static void without_a_stall_timeout_its_use_is_told_once(void **state)
{
    struct worker_activity a = {0};
    bool news;

    (void)state;
    activity_sample(&a, 1000, 1, 0, 1000);
    activity_sample(&a, 31000, 901, 0, 1000);
    assert_int_equal(activity_told(&a, 0, 31000, &news).cpu_permille, 30);
    assert_true(news);
    activity_sample(&a, 41000, 10901, 0, 1000);
    assert_int_equal(activity_told(&a, 0, 41000, &news).cpu_permille, 1000);
    assert_false(news);
}

/* 0 says that the agent does not know. */
static void a_worker_that_is_not_idle_yet_uses_more_than_nothing(void **state)
{
    struct worker_activity a = {0};
    bool news;

    (void)state;
    activity_sample(&a, 1000, 1, 0, 1000);
    activity_sample(&a, 6000, 1001, 0, 1000);
    activity_sample(&a, 7000, 1001, 0, 1000);
    assert_int_equal(activity_told(&a, 10000, 7000, &news).idle_ms, -1);
    assert_int_equal(activity_told(&a, 10000, 7000, &news).cpu_permille, 1);
}

static void a_short_stall_timeout_is_reported_in_time(void **state)
{
    struct worker_activity a = {0};
    bool news;

    (void)state;
    activity_sample(&a, 1000, 1, 0, 1000);
    assert_int_equal(activity_told(&a, 10000, 5999, &news).silent_ms, -1);
    assert_int_equal(activity_told(&a, 10000, 6000, &news).silent_ms, 5000);
}

static void a_wall_clock_that_was_set_back_is_no_silence(void **state)
{
    struct worker_activity a = {0};
    bool news;

    (void)state;
    activity_sample(&a, 1000, 1, 0, 900000);
    assert_int_equal(activity_told(&a, 0, 60000, &news).silent_ms, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_is_idle_after_a_while_without_cpu_time),
        cmocka_unit_test(a_worker_is_stuck_only_while_it_is_idle),
        cmocka_unit_test(what_an_idle_worker_waits_in_is_told),
        cmocka_unit_test(silence_ends_with_output_or_a_report),
        cmocka_unit_test(what_a_silent_worker_uses_is_told),
        cmocka_unit_test(a_worker_that_crosses_a_quarter_of_a_core_is_told),
        cmocka_unit_test(a_worker_that_uses_more_and_less_is_told_seldom),
        cmocka_unit_test(a_message_for_another_worker_tells_of_this_one_too),
        cmocka_unit_test(without_a_stall_timeout_its_use_is_told_once),
        cmocka_unit_test(a_worker_that_is_not_idle_yet_uses_more_than_nothing),
        cmocka_unit_test(a_short_stall_timeout_is_reported_in_time),
        cmocka_unit_test(a_wall_clock_that_was_set_back_is_no_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
