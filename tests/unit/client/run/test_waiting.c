#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/run/waiting.h"

static const char *const gpus = "waits for 2 nodes with 8 GPUs each: the cluster has 1";

static void test_reason_is_printed_once_after_a_second(void **state)
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
    assert_int_equal(w.since_ms, 5000); /* the job has waited all the time */
}

static void test_recovering_job_waits_too(void **state)
{
    struct waiting w = {0};

    (void)state;
    assert_false(waiting_turn(&w, "recovering", "rank 1 exited with code 3", 1000));
    assert_false(waiting_turn(&w, "recovering", "rank 1 exited with code 3",
                              9000)); /* the reason is a failure, not a wait */
    assert_int_equal(w.since_ms, 0);
    assert_false(waiting_turn(&w, "recovering", "waits before the next restart", 9000));
    assert_false(waiting_turn(&w, "recovering", gpus, 9900));
    assert_true(waiting_turn(&w, "recovering", gpus, 10900));
    assert_int_equal(w.since_ms, 9000);
}

static void test_running_job_does_not_wait(void **state)
{
    struct waiting w = {0};

    (void)state;
    assert_false(waiting_turn(&w, "queued", gpus, 1000));
    assert_false(waiting_turn(&w, "running", "", 2000));
    assert_int_equal(w.since_ms, 0);
    assert_false(waiting_turn(&w, "recovering", gpus, 3000)); /* a new wait is printed after a second again */
    assert_true(waiting_turn(&w, "recovering", gpus, 4000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reason_is_printed_once_after_a_second),
        cmocka_unit_test(test_recovering_job_waits_too),
        cmocka_unit_test(test_running_job_does_not_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
