#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/run/waiting.h"

static const char *const gpus = "waits for 2 nodes with 8 GPUs each: the cluster has 1";

static void each_reason_is_said_once_when_it_has_held(void **state)
{
    struct waiting w = {0};

    (void)state;
    assert_false(waiting_turn(&w, "queued", gpus, 5000));
    assert_false(waiting_turn(&w, "queued", gpus, 5999));
    assert_true(waiting_turn(&w, "queued", gpus, 6000));
    assert_string_equal(w.reason, gpus);
    assert_false(waiting_turn(&w, "queued", gpus, 60000));
    assert_false(waiting_turn(&w, "queued", "waits for 1 slot", 61000));
    assert_true(waiting_turn(&w, "queued", "waits for 1 slot", 62000));
    assert_int_equal(w.since_ms, 5000); /* it has waited all the time */
}

static void a_job_that_recovers_says_it_too(void **state)
{
    struct waiting w = {0};

    (void)state;
    assert_false(waiting_turn(&w, "recovering", "rank 1 exited with code 3", 1000));
    assert_false(
        waiting_turn(&w, "recovering", "rank 1 exited with code 3", 9000)); /* no wait, but a cause */
    assert_int_equal(w.since_ms, 0);
    assert_false(waiting_turn(&w, "recovering", "waits before the next restart", 9000));
    assert_false(waiting_turn(&w, "recovering", gpus, 9900));
    assert_true(waiting_turn(&w, "recovering", gpus, 10900));
    assert_int_equal(w.since_ms, 9000);
}

static void what_runs_does_not_wait(void **state)
{
    struct waiting w = {0};

    (void)state;
    assert_false(waiting_turn(&w, "queued", gpus, 1000));
    assert_false(waiting_turn(&w, "running", "", 2000));
    assert_int_equal(w.since_ms, 0);
    assert_false(waiting_turn(&w, "recovering", gpus, 3000)); /* a new wait has its own second */
    assert_true(waiting_turn(&w, "recovering", gpus, 4000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_reason_is_said_once_when_it_has_held),
        cmocka_unit_test(a_job_that_recovers_says_it_too),
        cmocka_unit_test(what_runs_does_not_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
