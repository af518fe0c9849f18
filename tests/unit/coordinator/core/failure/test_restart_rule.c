/* Faults lead to a restart, errors of the program only with `restart_on: any`, and the same error twice to none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/worker/exits.h"
#include "tests/unit/coordinator/core/core_fixture.h"

/* What status says; NULL: nothing. The caller frees. */
static char *not_restarted(struct core_fixture *f, int64_t job)
{
    struct core_job_status status;
    struct err e;

    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    char *text = steal(status.not_restarted);
    core_job_status_release(&status);
    return text;
}

static void assert_told(struct core_fixture *f, int64_t job, const char *wanted)
{
    CLEANUP(free_text) char *text = not_restarted(f, job);
    CLEANUP(free_text) char *line = xasprintf("%s\n", wanted);

    assert_non_null(text);
    assert_string_equal(text, wanted);
    assert_true(fixture_said(f, line)); /* an event, too */
}

/* The job starts again after the pause that follows the second restart and later ones. */
static void form_again(struct core_fixture *f, int64_t job)
{
    fixture_pass_beating(f, 31000, "box1 box2");
    fixture_form(f, job);
}

/* Rank 0 ends with the code, `ms` after it was started. */
static void fail_after(struct core_fixture *f, int64_t job, int64_t ms, int code, const char *tail)
{
    fixture_fact(f, job, 0,
                 (struct spawn_fact){.state = SPAWN_EXITED,
                                     .pid = 77,
                                     .code = code,
                                     .started_ms = f->now.wall_ms - ms,
                                     .ended_ms = f->now.wall_ms,
                                     .stderr_tail = tail});
}

#define ERROR_TEXT                                                                                           \
    "not restarted, because the program itself failed (restart_on: fault); --restart-on any restarts it after errors, too"

static void an_error_ends_the_job(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 3\n");

    fail_after(f, job, 500, 2, "usage: train.py FILE");
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_int_equal(core_job(f->core, job)->exit_code, 2);
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    assert_int_equal(core_job(f->core, job)->generation, 1);
    assert_true(fixture_said(f, "generation 1 closed (not restarted)\n"));
    assert_told(f, job, ERROR_TEXT);
    fixture_restart(f);
    assert_told(f, job, ERROR_TEXT);
}

static void without_restarts_only_max_restarts_is_named(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "");

    fail_after(f, job, 500, 2, "usage: sleep NUMBER");
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_int_equal(core_job(f->core, job)->generation, 1);
    assert_true(fixture_said(f, "generation 1 closed (not restarted: max_restarts is 0)\n"));
    assert_null(not_restarted(f, job));
}

static void faults_restart_the_job(void **state)
{
    static const struct spawn_fact faults[] = {
        {.signal = 9},
        {.signal = 11},
        {.code = 137}, /* a shell whose child was killed */
        {.code = 1, .out_of_memory = true},
        {.code = EXIT_TRY_AGAIN},
        {.lost = true},
    };

    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        struct core_fixture *f = *state;
        int64_t job = fixture_running_job(f, "max_restarts: 3\n");
        struct spawn_fact fact = faults[i];

        fact.state = SPAWN_EXITED;
        fact.ended_ms = f->now.wall_ms;
        fixture_fact(f, job, 0, fact);
        assert_int_equal(fixture_job(f, job), JOB_STARTING);
        assert_int_equal(core_job(f->core, job)->restarts_used, 1);
        assert_null(not_restarted(f, job));
        fixture_cancel(f, job, true);
        fixture_both_obey(f);
    }
}

static void an_exit_code_of_minus_one_is_an_error(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 3\n");

    fail_after(f, job, 500, 255, NULL);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_int_equal(core_job(f->core, job)->exit_code, 255);
}

static void a_trainers_failures_are_faults_but_for_wrong_usage(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 3\n" TRAIN);

    fail_after(f, job, 500, 1, "CUDA error");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
    fixture_form(f, job);
    fail_after(f, job, 500, EXIT_USAGE, "unknown option");
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_told(f, job, ERROR_TEXT);
}

static void an_error_on_a_sick_gpu_is_a_fault(void **state)
{
    struct core_fixture *f = *state;
    struct core_gpu sick = {.uuid = (char *)"GPU-box1-0", .problem = (char *)"Xid 63 at 14:02"};
    struct core_event event = {.kind = CORE_HEARTBEAT, .session = fixture_hello(f, "box1", "i", 1, 2)};

    fixture_facts(f, "box1", NULL, 0);
    int64_t job = fixture_submit(f, "gpus_per_proc: 1\nmax_restarts: 1\n");
    fixture_form(f, job);
    event.heartbeat.gpus = &sick;
    event.heartbeat.gpu_count = 1;
    core_event(f->core, &event, f->now, &f->out);
    fail_after(f, job, 90000, 1, "CUDA error: uncorrectable ECC error encountered");
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
    assert_int_equal(fixture_job(f, job), JOB_STARTING); /* on the other GPU */
}

/* ---- restart_on: any */

static void any_restarts_after_an_error(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 2\nrestart_on: any\n");

    fail_after(f, job, 500, 3, "a first error");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    fixture_form(f, job);
    fail_after(f, job, 500, 3, "a second error");
    assert_int_equal(core_job(f->core, job)->restarts_used, 2);
    form_again(f, job);
    fail_after(f, job, 500, 3, "a third error");
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_true(fixture_said(f, "generation 3 closed (all 2 restarts are used)\n"));
    assert_null(not_restarted(f, job));
}

#define TWICE(where)                                                                                            \
    "failed twice in the same way: exit code 3 and the last line 'ValueError: no such shard' on stderr, " where \
    ": not restarted; correct the program, then start the job again"

static void the_same_error_twice_ends_the_job(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 9\nrestart_on: any\n");

    fail_after(f, job, 500, 3, "Traceback at 0x1\nValueError: no such shard\n\n");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    fixture_form(f, job);
    fail_after(f, job, 9000, 3, "Traceback at 0x2\nValueError: no such shard");
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_int_equal(core_job(f->core, job)->exit_code, 3);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
    assert_true(fixture_said(f, "generation 2 closed (not restarted)\n"));
    assert_told(f, job, TWICE("within 10 s of the start of generation 1 and of generation 2"));
}

static void private_logs_are_not_quoted(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 9\nrestart_on: any\nlogs: private\n");

    fail_after(f, job, 500, 3, "ValueError: no such shard");
    fixture_form(f, job);
    fail_after(f, job, 500, 3, "ValueError: no such shard");
    assert_told(
        f, job,
        "failed twice in the same way: exit code 3 and the same last line on stderr, within 10 s of the start of "
        "generation 1 and of generation 2: not restarted; correct the program, then start the job again");
    assert_false(fixture_said(f, "no such shard"));
}

static void the_first_error_survives_a_coordinator_restart(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 9\nrestart_on: any\n");

    fail_after(f, job, 500, 3, "ValueError: no such shard");
    fixture_form(f, job);
    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 4, 0);
    fixture_hello(f, "box2", "box2", 4, 0);
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    fail_after(f, job, 500, 3, "ValueError: no such shard");
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_told(f, job, TWICE("within 10 s of the start of generation 1 and of generation 2"));
    fixture_restart(f);
    assert_told(f, job, TWICE("within 10 s of the start of generation 1 and of generation 2"));
}

static void a_fault_in_between_does_not_hide_the_second_error(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 9\nrestart_on: any\n");

    fail_after(f, job, 500, 3, "ValueError: no such shard");
    fixture_form(f, job);
    fixture_exit(f, job, 0, 0, 9);
    form_again(f, job);
    fail_after(f, job, 500, 3, "ValueError: no such shard");
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_told(f, job, TWICE("within 10 s of the start of generation 1 and of generation 3"));
}

/* Each of these differs from the first failure in one thing. */
static void failures_that_differ_go_on(void **state)
{
    static const struct {
        int64_t ms;
        int code;
        const char *tail;
    } second[] = {
        {500, 4, "ValueError: no such shard"},    {500, 3, "ValueError: no such shards"},
        {500, 3, "ValueError: no such shard\nx"}, {500, 3, NULL},
        {10000, 3, "ValueError: no such shard"},  {500, 75, "ValueError: no such shard"},
    };

    for (size_t i = 0; i < ARRAY_LEN(second); i++) {
        struct core_fixture *f = *state;
        int64_t job = fixture_running_job(f, "max_restarts: 9\nrestart_on: any\n");

        fail_after(f, job, 500, 3, "ValueError: no such shard");
        fixture_form(f, job);
        fail_after(f, job, second[i].ms, second[i].code, second[i].tail);
        assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
        assert_int_equal(core_job(f->core, job)->restarts_used, 2);
        form_again(f, job);
        fixture_cancel(f, job, true);
        fixture_both_obey(f);
    }
}

/* Nothing shows that two failures without a word are the same one. */
static void failures_without_a_line_on_stderr_go_on(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 2\nrestart_on: any\n");

    fail_after(f, job, 500, 1, NULL);
    fixture_form(f, job);
    fail_after(f, job, 500, 1, "\n");
    assert_int_equal(core_job(f->core, job)->restarts_used, 2);
    form_again(f, job);
}

/* The job fails late, after its rank 0 has reported the step; -1: none. */
static void fail_late_at(struct core_fixture *f, int64_t job, int64_t step)
{
    if (step >= 0)
        fixture_report(f, job, 0, step, "loss", 1.5);
    fail_after(f, job, 700000, 3, "ValueError: no such shard");
}

static void the_same_error_at_the_same_step_ends_the_job(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_running_job(f, "max_restarts: 9\nrestart_on: any\n");

    fail_late_at(f, job, 1200);
    fixture_form(f, job);
    fixture_report(f, job, 0, 1190, "loss", 1.5); /* it continues from a snapshot */
    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 4, 0);
    fixture_all_run(f, "box1");
    fail_late_at(f, job, 1200);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_told(f, job, TWICE("at step 1,200 of generation 1 and of generation 2"));
}

static void the_same_error_at_another_step_goes_on(void **state)
{
    static const struct {
        int64_t first, second;
    } cases[] = {{1200, 1210}, {1200, -1}, {-1, 1200}, {-1, -1}};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct core_fixture *f = *state;
        int64_t job = fixture_running_job(f, "max_restarts: 9\nrestart_on: any\n");

        fail_late_at(f, job, cases[i].first);
        fixture_form(f, job);
        fail_late_at(f, job, cases[i].second);
        assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
        assert_int_equal(core_job(f->core, job)->restarts_used, 2);
        fixture_cancel(f, job, true);
        fixture_both_obey(f);
    }
}

/* ---- a peer's exit code comes first, then the fault that caused it */

#define TWO "nodes: 2\nmax_restarts: 3\n"

static int64_t waiting_job(struct core_fixture *f, const char *file)
{
    int64_t job = fixture_running_job(f, file);

    fail_after(f, job, 60000, 1, "Connection reset by peer");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    assert_int_equal(fixture_stop(f, job, 1), CORE_STOP_TERM);
    assert_told(f, job, ERROR_TEXT);
    return job;
}

static void the_job_ends_when_its_workers_have_ended(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, TWO);

    fixture_pass_beating(f, 20000, "box1 box2");
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING); /* nothing is placed meanwhile */
    assert_int_equal(core_job(f->core, job)->generation, 1);
    assert_int_equal(fixture_restart_job(f, job), ERR_FAILED_PRECONDITION);
    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 4, 0);
    fixture_hello(f, "box2", "box2", 4, 0);
    fixture_both_obey(f);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_int_equal(core_job(f->core, job)->exit_code, 1);
    assert_int_equal(core_job(f->core, job)->generation, 1);
}

static void assert_restarted(struct core_fixture *f, int64_t job, const char *cause)
{
    CLEANUP(free_text) char *first = xasprintf("%s: this failure came first\n", cause);

    assert_true(fixture_said(f, first));
    assert_true(fixture_said(f, "generation 1 closed (restart 1 of 3)\n"));
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
    assert_null(not_restarted(f, job));
    assert_non_null(strstr(core_job(f->core, job)->last_restart, cause));
}

static void a_signal_that_came_first_restarts_the_job(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, TWO);

    fixture_exit(f, job, 1, 0, 9);
    assert_restarted(f, job, "rank 1 killed by signal 9 on box2, noticed after 12 ms");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_int_equal(core_job(f->core, job)->generation, 2);
}

static void a_lost_supervisor_that_came_first_restarts_the_job(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, TWO);

    fixture_fact(f, job, 1, (struct spawn_fact){.state = SPAWN_EXITED, .lost = true});
    assert_restarted(f, job, "rank 1 on box2 ended, and its exit code is unknown");
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
}

static void a_lost_node_that_came_first_restarts_the_job(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, TWO);

    fixture_pass_beating(f, 10000, "box1");
    assert_int_equal(fixture_node_state(f, "box2"), NODE_LOST);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
    assert_true(fixture_said(f, "node box2 lost: "));
    assert_null(not_restarted(f, job));
    fixture_node(f, "box2", 4);
    fixture_node(f, "box3", 4);
    fixture_pass_beating(f, 5000, "box1 box2 box3");
    assert_int_equal(core_job(f->core, job)->generation, 2);
}

/* Ranks 0 and 1 end by themselves, the one with an error, the other as `fact` says; the reports come in one of the
 * two orders. */
static int64_t error_beside(struct core_fixture *f, const char *file, struct spawn_fact fact,
                            bool error_first)
{
    int64_t job = fixture_running_job(f, file);

    fact.state = SPAWN_EXITED;
    fact.ended_ms = f->now.wall_ms;
    if (!error_first)
        fixture_fact(f, job, 1, fact);
    fail_after(f, job, 60000, 1, "Connection reset by peer");
    if (error_first)
        fixture_fact(f, job, 1, fact);
    return job;
}

static void an_abort_beside_an_error_is_its_consequence(void **state)
{
    static const struct spawn_fact aborts[] = {{.signal = 6}, {.code = 134}, {.signal = 13}, {.code = 141}};

    for (size_t i = 0; i < 2 * ARRAY_LEN(aborts); i++) {
        struct core_fixture *f = *state;
        const char *file = i < 4 ? TWO : "nodes: 2\nmax_restarts: 1\n";
        int64_t job = error_beside(f, file, aborts[i / 2], i % 2);

        assert_int_equal(fixture_job(f, job), JOB_FAILED);
        assert_int_equal(core_job(f->core, job)->exit_code, 1);
        assert_int_equal(core_job(f->core, job)->generation, 1);
        assert_int_equal(core_job(f->core, job)->restarts_used, 0);
        assert_told(f, job, ERROR_TEXT);
    }
}

static void a_fault_beside_an_error_is_its_cause(void **state)
{
    static const struct spawn_fact faults[] = {
        {.signal = 11}, {.code = EXIT_TRY_AGAIN}, {.code = 1, .out_of_memory = true}};

    for (size_t i = 0; i < 2 * ARRAY_LEN(faults); i++) {
        struct core_fixture *f = *state;
        int64_t job = error_beside(f, TWO, faults[i / 2], i % 2);

        assert_int_equal(fixture_job(f, job), JOB_STARTING);
        assert_int_equal(core_job(f->core, job)->restarts_used, 1);
        assert_null(not_restarted(f, job));
        fixture_cancel(f, job, true);
        fixture_both_obey(f);
    }
}

static void say_sick(struct core_fixture *f, uint64_t session, const char *uuid, bool lost)
{
    struct core_gpu sick = {.uuid = (char *)uuid, .problem = (char *)"Xid 63 at 14:02", .lost = lost};
    struct core_event event = {.kind = CORE_HEARTBEAT, .session = session};

    event.heartbeat.gpus = &sick;
    event.heartbeat.gpu_count = 1;
    core_event(f->core, &event, f->now, &f->out);
}

/* One rank on each of two nodes with two GPUs each. Rank 1 is that of box2, whose session is returned. */
static int64_t running_on_gpus(struct core_fixture *f, const char *file, uint64_t *session)
{
    fixture_hello(f, "box1", "box1", 1, 2);
    *session = fixture_hello(f, "box2", "box2", 1, 2);
    fixture_facts(f, "box1", NULL, 0);
    fixture_facts(f, "box2", NULL, 0);
    int64_t job = fixture_submit(f, file);
    fixture_form(f, job);
    assert_string_equal(fixture_node_of(f, job, 1), "box2");
    return job;
}

#define TWO_GPUS TWO "gpus_per_proc: 1\n"

static void test_sick_gpu_beside_error(struct core_fixture *f, int signal, bool error_first)
{
    uint64_t session;
    int64_t job = running_on_gpus(f, TWO_GPUS, &session);

    say_sick(f, session, "GPU-box2-0", false);
    if (!error_first)
        fixture_exit(f, job, 1, signal ? 0 : 1, signal);
    fail_after(f, job, 60000, 1, "Connection reset by peer");
    if (error_first)
        fixture_exit(f, job, 1, signal ? 0 : 1, signal);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
    assert_int_equal(fixture_job(f, job), JOB_STARTING);
    assert_null(not_restarted(f, job));
    assert_non_null(strstr(core_job(f->core, job)->last_restart, "rank 1 "));
}

static void a_sick_gpus_exit_code_reported_first_is_the_cause(void **state)
{
    test_sick_gpu_beside_error(*state, 0, false);
}

static void a_sick_gpus_exit_code_reported_last_is_the_cause(void **state)
{
    test_sick_gpu_beside_error(*state, 0, true);
}

static void a_sick_gpus_abort_reported_first_is_the_cause(void **state)
{
    test_sick_gpu_beside_error(*state, 6, false);
}

static void a_sick_gpus_abort_reported_last_is_the_cause(void **state)
{
    test_sick_gpu_beside_error(*state, 6, true);
}

/* ---- the GPU's failure is reported after the exit of its program */

static void a_sick_gpu_reported_in_time_restarts_the_job(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_on_gpus(f, "nodes: 2\nmax_restarts: 3\ngpus_per_proc: 1\n", &session);

    fixture_exit(f, job, 1, 1, 0);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
    fixture_exit(f, job, 0, 1, 0);
    assert_int_equal(fixture_job(f, job),
                     JOB_RECOVERING);          /* all workers have ended, but the agents may report */
    say_sick(f, session, "GPU-box2-1", false); /* a GPU that the job does not use */
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    say_sick(f, session, "GPU-box2-0", false);
    fixture_pass_beating(f, 1000, "box1 box2");
    assert_restarted(f, job, "box2 gpu0 of rank 1: Xid 63 at 14:02");
}

static void a_peers_gpu_explains_an_error_only_if_it_is_lost(void **state)
{
    struct core_fixture *f = *state;
    uint64_t session;
    int64_t job = running_on_gpus(f, TWO_GPUS, &session);

    fixture_exit(f, job, 0, 1, 0);
    say_sick(f, session, "GPU-box2-0", false);
    assert_int_equal(core_job(f->core, job)->restarts_used, 0);
    say_sick(f, session, "GPU-box2-0", true);
    assert_int_equal(core_job(f->core, job)->restarts_used, 1);
}

static void without_news_of_the_gpu_the_error_ends_the_job(void **state)
{
    for (int restarted = 0; restarted < 2; restarted++) {
        struct core_fixture *f = *state;
        uint64_t session;
        int64_t job = running_on_gpus(f, "gpus_per_proc: 1\nnodes: 2\nmax_restarts: 3\n", &session);

        fixture_exit(f, job, 1, 1, 0);
        fixture_exit(f, job, 0, 1, 0);
        fixture_pass_beating(f, 3000, "box1 box2");
        assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
        if (restarted)
            fixture_restart(f); /* nothing but the deadline would end the job */
        fixture_pass_beating(f, restarted ? 5000 : 2000, "");
        assert_int_equal(fixture_job(f, job), JOB_FAILED);
        assert_int_equal(core_job(f->core, job)->exit_code, 1);
        assert_told(f, job, ERROR_TEXT);
    }
}

/* The agent of box2 had not started its worker when the program failed on box1. */
static void a_worker_that_never_ran_is_no_fault(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 4);
    fixture_node(f, "box2", 4);
    int64_t job = fixture_submit(f, TWO);
    fixture_all_run(f, "box1");
    fail_after(f, job, 500, 2, "usage: train.py FILE");
    fixture_facts(f, "box2", NULL, 0);
    assert_int_equal(fixture_job(f, job), JOB_FAILED);
    assert_int_equal(core_job(f->core, job)->exit_code, 2);
    assert_int_equal(core_job(f->core, job)->generation, 1);
}

static void a_cancel_ends_the_wait(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = waiting_job(f, TWO);

    fixture_cancel(f, job, false);
    fixture_exit(f, job, 1, 0, 9);
    assert_int_equal(fixture_job(f, job), JOB_CANCELLED);
    assert_null(not_restarted(f, job));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_error_ends_the_job),
        TEST(without_restarts_only_max_restarts_is_named),
        TEST(faults_restart_the_job),
        TEST(an_exit_code_of_minus_one_is_an_error),
        TEST(a_trainers_failures_are_faults_but_for_wrong_usage),
        TEST(an_error_on_a_sick_gpu_is_a_fault),
        TEST(any_restarts_after_an_error),
        TEST(the_same_error_twice_ends_the_job),
        TEST(private_logs_are_not_quoted),
        TEST(the_first_error_survives_a_coordinator_restart),
        TEST(a_fault_in_between_does_not_hide_the_second_error),
        TEST(failures_that_differ_go_on),
        TEST(failures_without_a_line_on_stderr_go_on),
        TEST(the_same_error_at_the_same_step_ends_the_job),
        TEST(the_same_error_at_another_step_goes_on),
        TEST(the_job_ends_when_its_workers_have_ended),
        TEST(a_signal_that_came_first_restarts_the_job),
        TEST(a_lost_supervisor_that_came_first_restarts_the_job),
        TEST(a_lost_node_that_came_first_restarts_the_job),
        TEST(an_abort_beside_an_error_is_its_consequence),
        TEST(a_fault_beside_an_error_is_its_cause),
        TEST(a_sick_gpus_exit_code_reported_first_is_the_cause),
        TEST(a_sick_gpus_exit_code_reported_last_is_the_cause),
        TEST(a_sick_gpus_abort_reported_first_is_the_cause),
        TEST(a_sick_gpus_abort_reported_last_is_the_cause),
        TEST(a_sick_gpu_reported_in_time_restarts_the_job),
        TEST(a_peers_gpu_explains_an_error_only_if_it_is_lost),
        TEST(without_news_of_the_gpu_the_error_ends_the_job),
        TEST(a_worker_that_never_ran_is_no_fault),
        TEST(a_cancel_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
