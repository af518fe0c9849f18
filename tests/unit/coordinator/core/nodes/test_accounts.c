/* Jobs of users who have no account on a node. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/coordinator/core/core_fixture.h"

/* No such restart counts, the node keeps serving other users, and status names the missing account. */
static void a_job_goes_where_its_user_has_an_account(void **state)
{
    struct core_fixture *f = *state;
    static const char *const missing[] = {"eva", "no account eva on box2", "ana", "no account ana on box2",
                                          NULL};
    static const char *const none[] = {NULL};
    struct spawn_fact refusal = {.state = SPAWN_EXITED,
                                 .not_started = true,
                                 .node_trouble = true,
                                 .no_account = true,
                                 .code = 127,
                                 .message = "no account ana on box1"};

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 2);
    int64_t job = fixture_submit(f, "max_restarts: 0\n");
    assert_string_equal(fixture_node_of(f, job, 0), "box1");
    fixture_fact(f, job, 0, refusal);
    assert_true(fixture_said(f, "box1 could not start rank 0: no account ana on box1"));
    assert_string_equal(fixture_node_of(f, job, 0), "box2");
    refusal.message = "no account ana on box2";
    fixture_fact(f, job, 0, refusal);
    assert_string_equal(fixture_waits(f, job),
                        "waits for 1 node with 1 slot: the cluster has 0, no account ana on "
                        "box1, and the same on 1 other");
    fixture_accounts(f, "box2", missing);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    fixture_accounts(f, "box1", none); /* the account was created there */
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_string_equal(fixture_node_of(f, job, 0), "box1");
    for (int i = 0; i < 8; i++) { /* more often than NODE_RETRIES */
        refusal.message = "no account ana on box1";
        fixture_fact(f, job, 0, refusal);
        assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
        fixture_accounts(f, "box1", none);
        assert_int_equal(fixture_job(f, job), JOB_STARTING);
    }
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_job_goes_where_its_user_has_an_account),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
