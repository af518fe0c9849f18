#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/cmd/jobs/job_filter.h"
#include "client/cmd/jobs/job_reference.h"

static Ddp__V1__JobStatus jobs[6];
static Ddp__V1__JobStatus *list[6];

static int make_jobs(void **state)
{
    static const struct {
        int64_t job;
        const char *name, *state, *user;
        int64_t ended_ms;
    } rows[] = {{3, "gpt", "failed", "ana", 100},    {4, "mlp", "succeeded", "ana", 200},
                {6, "gpt", "succeeded", "ben", 300}, {7, "lr-1e-3", "running", "ana", 0},
                {8, "mlp", "running", "ana", 0},     {9, "3x", "queued", "ben", 0}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ddp__v1__job_status__init(&jobs[i]);
        jobs[i].job = rows[i].job;
        jobs[i].name = (char *)(uintptr_t)rows[i].name;
        jobs[i].state = (char *)(uintptr_t)rows[i].state;
        jobs[i].user = (char *)(uintptr_t)rows[i].user;
        jobs[i].ended_ms = rows[i].ended_ms;
        list[i] = &jobs[i];
    }
    return 0;
}

static enum err_code resolve_text(const char *text, struct job_numbers *out, struct err *e)
{
    struct job_reference reference;
    if (job_reference_parse(text, &reference, e) != ERR_OK)
        return e->code;
    return job_reference_resolve(&reference, list, ARRAY_LEN(list), "ana", out, e);
}

static void check_meaning(const char *text, size_t count, const int64_t *wanted)
{
    CLEANUP(job_numbers_release) struct job_numbers numbers = {0};
    struct err e = {0};
    if (resolve_text(text, &numbers, &e) != ERR_OK)
        fail_msg("%s: %s", text, e.msg);
    assert_int_equal(numbers.count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(numbers.list[i], wanted[i]);
}

static void check_refusal(const char *text, enum err_code code, const char *message)
{
    CLEANUP(job_numbers_release) struct job_numbers numbers = {0};
    struct err e = {0};
    assert_int_equal(resolve_text(text, &numbers, &e), code);
    assert_string_equal(e.msg, message);
}

static void references_mean_jobs(void **state)
{
    (void)state;
    check_meaning("12", 1, (const int64_t[]){12}); /* the coordinator says whether it exists */
    check_meaning("#3", 1, (const int64_t[]){3});
    check_meaning("3-6", 3, (const int64_t[]){3, 4, 6});
    check_meaning("#7-#7", 1, (const int64_t[]){7});
    check_meaning("last", 1, (const int64_t[]){8});
    check_meaning("lr-1e-3", 1, (const int64_t[]){7});
    check_meaning("3x", 1, (const int64_t[]){9});
    check_meaning("mlp", 1, (const int64_t[]){8}); /* 4 has ended */
}

static void a_reference_without_a_job_is_refused(void **state)
{
    (void)state;
    check_refusal("gpt", ERR_INVALID_ARGUMENT,
                  "2 jobs have the name 'gpt'; give the number: 6 (succeeded), 3 (failed)");
    check_refusal("nmae", ERR_NOT_FOUND, "no job has the name 'nmae': `ddpctl status --all` lists the jobs");
    check_refusal("20-30", ERR_NOT_FOUND, "there are no jobs 20-30: `ddpctl status --all` lists the jobs");
    check_refusal("5-3", ERR_INVALID_ARGUMENT, "range of jobs '5-3': its end is before its start");
    check_refusal("0", ERR_INVALID_ARGUMENT, "invalid job number '0': `ddpctl status` lists the jobs");
    check_refusal("-3", ERR_INVALID_ARGUMENT, "invalid job number '-3': `ddpctl status` lists the jobs");
    check_refusal("a b", ERR_INVALID_ARGUMENT, "invalid job number 'a b': `ddpctl status` lists the jobs");
}

static void nobody_means_the_last_job_of_another(void **state)
{
    (void)state;
    CLEANUP(job_numbers_release) struct job_numbers numbers = {0};
    struct job_reference last = {.kind = REFERENCE_LAST, .text = "last"};
    struct err e = {0};
    assert_int_equal(job_reference_resolve(&last, list, ARRAY_LEN(list), "eve", &numbers, &e), ERR_NOT_FOUND);
    assert_string_equal(e.msg, "last: there is no job of eve; `ddpctl status --all` lists the jobs");
}

static void a_command_for_one_job_takes_one(void **state)
{
    (void)state;
    CLEANUP(job_numbers_release) struct job_numbers numbers = {0};
    struct err e = {0};
    for (int64_t job = 3; job <= 5; job++) {
        job_numbers_add(&numbers, job);
        job_numbers_add(&numbers, 3); /* counts once */
    }
    assert_int_equal(job_numbers_only(&numbers, "logs", "3-5", &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "logs takes one job, but '3-5' means 3: 3, 4 and 5");
    numbers.count = 1;
    assert_int_equal(job_numbers_only(&numbers, "logs", "3", &e), ERR_OK);
}

static size_t count_kept(struct job_filter filter)
{
    size_t count = 0;
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        count += job_filter_keeps(&filter, list[i]);
    return count;
}

static void filters_choose_jobs(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(count_kept((struct job_filter){0}), 6);
    assert_int_equal(count_kept((struct job_filter){.user = "ben"}), 2);
    assert_int_equal(count_kept((struct job_filter){.state = "queued,running"}), 3);
    assert_int_equal(count_kept((struct job_filter){.state = "run"}), 0);
    assert_int_equal(count_kept((struct job_filter){.since_ms = 200}), 5);
    assert_int_equal(job_filter_check("queued,running", &e), ERR_OK);
    assert_int_equal(job_filter_check("runing", &e), ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "--state: no state 'runing', did you mean 'running'?");
    assert_int_equal(job_filter_check("queued,", &e), ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(references_mean_jobs),
        cmocka_unit_test(a_reference_without_a_job_is_refused),
        cmocka_unit_test(nobody_means_the_last_job_of_another),
        cmocka_unit_test(a_command_for_one_job_takes_one),
        cmocka_unit_test(filters_choose_jobs),
    };
    return cmocka_run_group_tests(tests, make_jobs, NULL);
}
