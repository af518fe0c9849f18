/* What workers use, and what follows from GPUs that are leased but idle. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/coordinator/core/job_sums.h"
#include "tests/unit/coordinator/core/core_fixture.h"

/* Box1 reports the utilisation of the GPU of each rank; below 0: its driver does not tell. */
static void say_usage(struct core_fixture *f, uint64_t session, int64_t job, const double *gpus, size_t count)
{
    struct core_spawn_usage list[8];
    struct core_event event = {.kind = CORE_USAGE, .session = session};

    for (size_t i = 0; i < count; i++) {
        list[i] = (struct core_spawn_usage){.job = job, .spawn = fixture_spawn(f, job, (int)i)};
        usage_init(&list[i].usage);
        list[i].usage.values[USAGE_CPU] = 0.5;
        usage_add_gpu(&list[i].usage, gpus[i] < 0 ? NAN : gpus[i], 1 << 30, 100, 40);
    }
    event.usage.spawns = list;
    event.usage.count = count;
    core_event(f->core, &event, f->now, &f->out);
}

/* The same every 5 s, as agents do. */
static void pass_using(struct core_fixture *f, uint64_t session, int64_t job, int64_t ms, double first,
                       double second)
{
    const double gpus[] = {first, second};

    for (int64_t passed = 0; passed < ms && fixture_job(f, job) == JOB_RUNNING; passed += 5000) {
        say_usage(f, session, job, gpus, 2);
        fixture_pass_beating(f, 5000, "box1");
    }
}

static int64_t running_job_on_gpus(struct core_fixture *f, const char *file, uint64_t *session)
{
    *session = fixture_hello(f, "box1", "box1", 4, 2);
    fixture_facts(f, "box1", NULL, 0);
    int64_t job = fixture_submit(f, file);
    fixture_all_run(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    return job;
}

static bool has_note(const struct core_fixture *f, int64_t job, const char *text)
{
    struct core_job_status status = {0};
    struct err e;
    bool found = false;

    assert_int_equal(core_job_status(f->core, job, true, &status, &e), ERR_OK);
    for (char **note = status.notes; note && *note; note++)
        found = found || strstr(*note, text);
    core_job_status_release(&status);
    return found;
}

#define FILE2 "procs_per_node: 2\ndevice: cuda\nmax_restarts: 3\n"
#define STOPS FILE2 "idle: {gpu: 10%, after: 30m, then: stop}\n" COMMAND

static void a_rank_shows_what_it_uses_until_nothing_is_known(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_gpus(f, FILE2 COMMAND, &session);
    struct core_event closed = {.kind = CORE_SESSION_CLOSED, .session = session};
    struct core_job_status status = {0};
    struct err e;

    say_usage(f, session, job, (const double[]){0.7, 0.2}, 2);
    assert_int_equal(core_job_status(f->core, job, true, &status, &e), ERR_OK);
    assert_true(status.ranks[1].usage && status.ranks[1].usage->values[USAGE_GPU] == 0.2);
    core_job_status_release(&status);
    core_event(f->core, &closed, f->now, &f->out);
    assert_int_equal(core_job_status(f->core, job, true, &status, &e), ERR_OK);
    assert_null(status.ranks[1].usage);
    core_job_status_release(&status);
}

/* What monitoring sees of a job: sums, the GPUs that it holds, and nothing once it does not run. */
static void a_running_job_is_summed_up(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_gpus(f, FILE2 COMMAND, &session);
    struct core_job_sums sums;
    struct core_gpu_use uses[4];

    assert_true(core_job_sums(f->core, job, &sums));
    assert_true(sums.ranks == 2 && sums.gpus == 2 && isnan(sums.usage.values[USAGE_CPU]));
    say_usage(f, session, job, (const double[]){0.75, 0.25}, 2);
    fixture_report(f, job, 0, 10, "loss", 1.5);
    assert_true(core_job_sums(f->core, job, &sums));
    assert_true(sums.usage.values[USAGE_CPU] == 1 && sums.usage.values[USAGE_GPU] == 0.5);
    assert_true(sums.usage.values[USAGE_GPU_WATTS] == 200 && sums.usage.values[USAGE_GPU_CELSIUS] == 40);
    assert_true(isnan(sums.usage.values[USAGE_READ]) && sums.loss == 1.5 && sums.step == 10);
    assert_int_equal(core_gpu_uses(f->core, uses, 1), 2); /* there are more than fit */
    assert_int_equal(core_gpu_uses(f->core, uses, 4), 2);
    assert_true(uses[1].job == job && !strcmp(uses[1].node, "box1") && uses[1].gpu != uses[0].gpu);
    fixture_cancel(f, job, true);
    assert_false(core_job_sums(f->core, job, &sums));
    assert_int_equal(core_gpu_uses(f->core, uses, 4), 0);
}

static void an_idle_gpu_is_said_after_ten_minutes(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_gpus(f, FILE2 COMMAND, &session);

    pass_using(f, session, job, 595000, 0.97, 0.01);
    assert_false(has_note(f, job, "idle"));
    pass_using(f, session, job, 10000, 0.97, 0.01);
    assert_true(has_note(f, job, "the GPU of rank 1 on box1 is idle: below 5 % for 10m"));
    assert_true(fixture_said(f, "the GPU of rank 1 on box1 is idle"));
    pass_using(f, session, job, 5000, 0.97, 0.5);
    assert_false(has_note(f, job, "idle"));
    assert_true(fixture_said(f, "no GPU of the job is idle any more"));
    pass_using(f, session, job, 7200000, 0.01, 0.01); /* nobody asked to stop it */
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_true(has_note(f, job, "GPUs of 2 of 2 ranks are idle"));
}

static void a_job_whose_gpus_are_all_idle_stops_if_it_says_so(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_gpus(f, STOPS, &session);

    pass_using(f, session, job, 7200000, 0.97, 0.01); /* one is busy */
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    pass_using(f, session, job, 1790000, 0.09, 0.01);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    pass_using(f, session, job, 20000, 0.09, 0.01);
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
    assert_true(fixture_said(f, "idle: all its GPUs were below 10 % for 30m"));
    assert_int_equal(fixture_stop(f, job, 0), CORE_STOP_TERM); /* with the grace period, as a cancel */
    fixture_all_obey(f, "box1");
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
}

static void a_gpu_counts_as_idle_only_if_its_driver_says_so(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_gpus(f, STOPS, &session);

    pass_using(f, session, job, 7200000, -1, 0.01);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_false(has_note(f, job, "rank 0"));
}

static void a_node_that_says_nothing_more_stops_no_job(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_gpus(f, STOPS, &session);

    pass_using(f, session, job, 1000000, 0.01, 0.01);
    fixture_pass_beating(f, 3000000, "box1"); /* its agent beats, but measures nothing */
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
    assert_false(has_note(f, job, "idle"));
    pass_using(f, session, job, 1795000, 0.01, 0.01); /* the time begins anew */
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

static void the_event_alone_comes_once_without_stop(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_job_on_gpus(f, FILE2 "idle: {after: 20m}\n" COMMAND, &session);

    pass_using(f, session, job, 1210000, 0.01, 0.01);
    assert_true(fixture_said(f, "idle: all its GPUs were below 5 % for 20m"));
    fixture_clear(f);
    pass_using(f, session, job, 3000000, 0.01, 0.01);
    assert_int_equal(fixture_job(f, job), JOB_RUNNING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_rank_shows_what_it_uses_until_nothing_is_known, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_running_job_is_summed_up, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(an_idle_gpu_is_said_after_ten_minutes, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_job_whose_gpus_are_all_idle_stops_if_it_says_so, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_gpu_counts_as_idle_only_if_its_driver_says_so, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_node_that_says_nothing_more_stops_no_job, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(the_event_alone_comes_once_without_stop, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
