#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/cmd/jobs/job_number.h"

static void test_job_numbers(void **state)
{
    (void)state;
    struct err e;
    int64_t job;
    assert_int_equal(job_number_parse("9", &job, &e), ERR_OK);
    assert_int_equal(job, 9);
    assert_int_equal(job_number_parse("#12", &job, &e), ERR_OK);
    assert_int_equal(job, 12);
    assert_int_equal(job_number_parse("0", &job, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(job_number_parse("9x", &job, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(job_number_parse("99999999999999999999", &job, &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "invalid job number '99999999999999999999': `ddpctl status` lists the jobs");
}

static void test_rank_numbers(void **state)
{
    (void)state;
    struct err e;
    int64_t rank;
    assert_int_equal(job_rank_parse("12", &rank, &e), ERR_OK);
    assert_int_equal(rank, 12);
    assert_int_equal(job_rank_parse("-1", &rank, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(job_rank_parse("", &rank, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(job_rank_parse("99999999", &rank, &e), ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_numbers),
        cmocka_unit_test(test_rank_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
