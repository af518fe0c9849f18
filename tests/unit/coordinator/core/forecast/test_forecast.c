/* When the jobs in the queue start: by the ends of the jobs before them, in the order of placement; what nobody can know; and
 * that a forecast changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/mem.h"
#include "daemon/coordinator/core/forecast/forecast.h"
#include "daemon/coordinator/core/model.h"
#include "tests/unit/coordinator/core/core_fixture.h"

#define MINUTE 60000

static struct forecast *forecast_of(struct core_fixture *f)
{
    struct forecast *forecast = forecast_begin(f->core, f->now);

    while (forecast_step(forecast))
        ;
    assert_true(forecast_done(forecast));
    return forecast;
}

static int64_t start_running(struct core_fixture *f, const char *file)
{
    int64_t job = fixture_submit(f, file);

    fixture_form(f, job);
    return job;
}

static void assert_start(struct core_fixture *f, struct forecast *forecast, int64_t job, int position,
                         int64_t in_ms, int64_t after)
{
    const struct forecast_start *s = forecast_find(forecast, job);

    assert_non_null(s);
    assert_int_equal(s->position, position);
    assert_true(s->known);
    assert_int_equal(s->start_ms - f->now.wall_ms, in_ms);
    assert_int_equal(s->after_job, after);
}

static void each_job_starts_at_the_end_of_another(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    fixture_node(f, "box2", 2);
    int64_t one = start_running(f, "procs_per_node: 2\ntime_limit: 10m\n");
    int64_t two = start_running(f, "procs_per_node: 2\ntime_limit: 20m\n");
    int64_t first = fixture_submit(f, "procs_per_node: 2\ntime_limit: 5m\n");
    int64_t second = fixture_submit(f, "procs_per_node: 2\ntime_limit: 60m\n");
    int64_t both = fixture_submit(f, "nodes: 2\ntime_limit: 1h\n");
    int64_t urgent = fixture_submit(f, "procs_per_node: 2\npriority: 3\ntime_limit: 1m\n");
    struct forecast *forecast = forecast_of(f);
    assert_start(f, forecast, urgent, 1, 10 * MINUTE, one);
    assert_start(f, forecast, first, 2, 11 * MINUTE, urgent);
    assert_start(f, forecast, second, 3, 16 * MINUTE, first);
    assert_start(f, forecast, both, 4, 76 * MINUTE, second);
    assert_string_equal(forecast_find(forecast, first)->after_node, "box1");
    assert_null(forecast_find(forecast, two));
    forecast_free(forecast);
}

static void small_jobs_pass_the_head(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    int64_t three = start_running(f, "procs_per_node: 3\ntime_limit: 10m\n");
    int64_t one = start_running(f, "time_limit: 2m\n");
    int64_t head = fixture_submit(f, "procs_per_node: 3\ntime_limit: 1m\n");
    int64_t small = fixture_submit(f, "time_limit: 30m\n");
    struct forecast *forecast = forecast_of(f);
    assert_start(f, forecast, head, 1, 10 * MINUTE, three);
    assert_start(f, forecast, small, 2, 10 * MINUTE,
                 three); /* what job `one` leaves is reserved for the head */
    assert_int_equal(fixture_job(f, one), JOB_RUNNING);
    forecast_free(forecast);
}

static void an_end_that_nobody_knows(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 2);
    int64_t endless = start_running(f, ""), other = start_running(f, "procs_per_node: 2\ntime_limit: 1m\n");
    int64_t both = fixture_submit(f, "nodes: 2\ntime_limit: 1m\n"), later = fixture_submit(f, "nodes: 2\n");
    int64_t huge = fixture_submit(f, "nodes: 3\n");
    struct forecast *forecast = forecast_of(f);
    const struct forecast_start *s = forecast_find(forecast, both);
    assert_false(s->known);
    assert_true(s->after_unknown);
    assert_int_equal(s->after_job, endless);
    assert_true(forecast_find(forecast, later)->after_unknown);
    assert_true(forecast_find(forecast, huge)->impossible);
    assert_false(forecast_find(forecast, huge)->after_unknown);
    assert_int_equal(fixture_job(f, other), JOB_RUNNING);
    forecast_free(forecast);
}

static void jobs_on_hold_are_not_in_the_queue(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t runs = start_running(f, "time_limit: 10m\n");
    int64_t held = fixture_submit(f, "hold: true\n"), next = fixture_submit(f, "");
    struct forecast *forecast = forecast_of(f);
    assert_null(forecast_find(forecast, held));
    assert_start(f, forecast, next, 1, 10 * MINUTE, runs);
    forecast_free(forecast);
}

static void gpus_and_recovering_jobs(void **state)
{
    struct core_fixture *f = *state;

    fixture_hello(f, "box1", "i", 1, 2);
    fixture_facts(f, "box1", NULL, 0);
    int64_t pair = start_running(f, "gpus_per_proc: 2\ntime_limit: 10m\nmax_restarts: 3\n");
    int64_t one = fixture_submit(f, "gpus_per_proc: 1\ntime_limit: 3m\n");
    int64_t same = fixture_submit(f, "gpus_per_proc: 1\ntime_limit: 4m\n");
    struct forecast *forecast = forecast_of(f);
    assert_start(f, forecast, one, 1, 10 * MINUTE, pair);
    assert_start(f, forecast, same, 2, 10 * MINUTE, pair);
    forecast_free(forecast);
    for (int i = 0; i < 2;
         i++) { /* after the second failure it waits a little, and starts before the others */
        fixture_form(f, pair);
        fixture_exit(f, pair, 0, 0, 9);
    }
    assert_int_equal(fixture_job(f, pair), JOB_RECOVERING);
    forecast = forecast_of(f);
    assert_start(f, forecast, pair, 1, 1000, 0);
    assert_start(f, forecast, one, 2, 10 * MINUTE + 1000, pair);
    forecast_free(forecast);
}

static void what_would_start_at_once(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    fixture_node(f, "box2", 2);
    start_running(f, "procs_per_node: 2\n");
    int64_t two = fixture_submit(f, "nodes: 2\nprocs_per_node: 2\n");
    CLEANUP(free_text) char *flags = core_start_at_once(f->core, two);
    assert_string_equal(flags, "--nodes 1");
    int64_t behind = fixture_submit(f, "procs_per_node: 2\n"); /* the free slots are reserved for the head */
    assert_null(core_start_at_once(f->core, behind));
}

/* A text of all that a forecast could have changed. */
static char *print_state(const struct core_fixture *f)
{
    struct buf out = {0};

    for (size_t i = 0; i < f->core->job_count; i++) {
        const struct job *job = f->core->jobs[i];
        buf_printf(&out, "%lld %d %zu %zu %s %lld", (long long)job->r.id, job->r.state, job->spawn_count,
                   job->generation_count, job->waits ? job->waits : "-", (long long)job->holder);
        for (char **t = job->targets; t && *t; t++)
            buf_printf(&out, " %s", *t);
        buf_putc(&out, '\n');
    }
    for (size_t i = 0; i < f->core->node_count; i++)
        buf_printf(&out, "%s %zu %zu %d\n", f->core->nodes[i]->r.name, f->core->nodes[i]->spawn_count,
                   f->core->nodes[i]->card_count, f->core->nodes[i]->next_port);
    buf_printf(&out, "%lld %lld %zu %lld", (long long)f->core->generations, (long long)f->core->revision,
               f->out.change_count + f->out.effect_count, (long long)f->core->queue_revision);
    return buf_steal(&out);
}

static void a_forecast_changes_nothing(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    fixture_node(f, "box2", 2);
    start_running(f, "procs_per_node: 2\ntime_limit: 10m\n");
    start_running(f, "procs_per_node: 2\ntime_limit: 20m\n");
    for (int i = 0; i < 20; i++)
        fixture_submit(f, i % 3 ? "time_limit: 5m\n" : "nodes: 2\nprocs_per_node: 2\ntime_limit: 5m\n");
    CLEANUP(free_text) char *before = print_state(f);
    struct forecast *forecast = forecast_of(f);
    CLEANUP(free_text) char *after = print_state(f);
    assert_string_equal(before, after);
    const int64_t revision = core_queue_revision(f->core);
    fixture_submit(f, "");
    assert_true(core_queue_revision(f->core) > revision);
    forecast_free(forecast);
}

/* Of this thread: other programs use the machine, too. */
static double cpu_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Prints what a forecast costs the coordinator's thread; the owner may pause after each step. */
static void a_job_whose_snapshots_are_out_of_reach(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 2);
    int64_t one = start_running(f, "procs_per_node: 2\ntime_limit: 10m\n");
    int64_t waiting = fixture_submit(f, "procs_per_node: 2\n");
    struct job *job = core_find_job(f->core, waiting);
    job->lost.found = strv_append(NULL, "box9"); /* a node that is gone */
    job->lost.said = xstrdup("waits for its snapshots");
    struct forecast *forecast = forecast_of(f);
    (void)one;
    assert_false(forecast_find(forecast, waiting)->known);
    assert_string_equal(job->lost.found[0], "box9");
    forecast_free(forecast);
}

#ifdef __SANITIZE_ADDRESS__
enum { QUEUE = 200 }; /* the time grows with the square: 1,000 jobs take 8 s */
#else
enum { QUEUE = 1000 };
#endif

static void a_long_queue(void **state)
{
    struct core_fixture *f = *state;
    double longest = 0, total = 0;
    int steps = 0;

    /* first the jobs: while there are no nodes, to submit one costs next to nothing */
    for (int i = 0; i < QUEUE; i++) {
        CLEANUP(free_text)
        char *file = xasprintf("nodes: %d\nprocs_per_node: %d\ntime_limit: %dm\n", 1 + i % 7 / 3, 1 + i % 8,
                               1 + i * 37 % 90);
        fixture_submit(f, file);
        fixture_clear(f);
    }
    for (int i = 0; i < 50; i++) { /* the fixture knows 64 sessions */
        char name[16];
        snprintf(name, sizeof(name), "box%02d", i);
        fixture_node(f, name, 8);
    }
    double begin = cpu_ms();
    struct forecast *forecast = forecast_begin(f->core, f->now);
    const double copy = cpu_ms() - begin;
    for (bool more = true; more; steps++) {
        begin = cpu_ms();
        more = forecast_step(forecast);
        const double ms = cpu_ms() - begin;
        total += ms;
        longest = ms > longest ? ms : longest;
    }
    begin = cpu_ms();
    free(core_start_at_once(f->core, QUEUE));
    print_message("a queue of %d jobs, 50 nodes: copy %.2f ms, %d steps of %.2f ms (longest %.2f ms), "
                  "alternative %.2f ms\n",
                  QUEUE, copy, steps, total / steps, longest, cpu_ms() - begin);
    for (int64_t job = 1; job <= QUEUE; job++)
        assert_true(fixture_job(f, job) != JOB_QUEUED || forecast_find(forecast, job)->known);
    forecast_free(forecast);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_job_starts_at_the_end_of_another, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(small_jobs_pass_the_head, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(an_end_that_nobody_knows, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(jobs_on_hold_are_not_in_the_queue, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(gpus_and_recovering_jobs, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(what_would_start_at_once, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_forecast_changes_nothing, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_job_whose_snapshots_are_out_of_reach, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(a_long_queue, fixture_setup, fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
