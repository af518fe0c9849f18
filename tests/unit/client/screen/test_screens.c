#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/job_status.h"
#include "client/screen/screen_events.h"
#include "client/screen/screen_follow.h"
#include "client/screen/screen_job.h"
#include "client/screen/screen_jobs.h"
#include "client/screen/screen_nodes.h"
#include "client/screen/screen_parts.h"
#include "client/text/json_print.h"
#include "tests/unit/client/golden.h"
#include "tests/unit/client/samples.h"

/* Compares each screen with golden/NAME.term (a terminal with colours) and golden/NAME.pipe (a pipe). */

static const struct term terminal = {.live = true, .colour = true, .columns = 120, .now_ms = NOW};
static const struct term narrow = {.live = true, .columns = 80, .now_ms = NOW};
static const struct term pipe_term = {.now_ms = NOW};

static void check_job(const char *name, void (*sample)(Ddp__V1__JobStatus *))
{
    Ddp__V1__JobStatus job;
    CLEANUP(buf_release) struct buf out = {0};
    sample(&job);
    screen_job(&job, NULL, &terminal, &out);
    CLEANUP(free_text) char *term_name = xasprintf("status-%s.term", name);
    CLEANUP(free_text) char *pipe_name = xasprintf("status-%s.pipe", name);
    golden_check(term_name, &out);
    screen_job(&job, NULL, &pipe_term, &out);
    golden_check(pipe_name, &out);
}

static void test_job_running(void **state)
{
    (void)state;
    check_job("running", sample_running);
}

static void test_job_queued(void **state)
{
    (void)state;
    check_job("queued", sample_queued);
}

static void test_job_failed(void **state)
{
    (void)state;
    check_job("failed", sample_failed);
}

static void test_job_succeeded(void **state)
{
    (void)state;
    check_job("succeeded", sample_succeeded);
}

static void test_job_command(void **state)
{
    (void)state;
    check_job("command", sample_command);
}

/* Only while ranks are missing. */
static void test_ranks_present(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    Ddp__V1__JobStatus job;
    Ddp__V1__JobStatus *list[] = {&job};
    Ddp__V1__ListJobsReply reply = DDP__V1__LIST_JOBS_REPLY__INIT;
    reply.jobs = list;
    reply.n_jobs = 1;
    sample_running(&job);
    job.ranks_present = job.ranks_wanted = 4;
    screen_job(&job, NULL, &pipe_term, &out);
    screen_jobs(&reply, false, &pipe_term, &out);
    assert_null(strstr(out.data, "of 4 ranks"));
    job.ranks_present = 3;
    job.missing = (char *)(uintptr_t) "rank 2 on \033box3 is being replaced";
    buf_clear(&out);
    screen_job(&job, NULL, &pipe_term, &out);
    assert_non_null(strstr(out.data, "\n3 of 4 ranks: rank 2 on ?box3 is being replaced\n"));
    buf_clear(&out);
    screen_jobs(&reply, false, &pipe_term, &out);
    assert_non_null(strstr(out.data, "  3 of 4 ranks: rank 2 on ?box3 is being replaced\n"));
    job.state = (char *)(uintptr_t) "recovering";
    job.reason = (char *)(uintptr_t) "rank 2 killed by signal 9";
    buf_clear(&out);
    screen_jobs(&reply, false, &pipe_term, &out);
    assert_non_null(strstr(out.data, " is being replaced; rank 2 killed by signal 9\n"));
}

static void check_start(int position, int64_t start_ms, const char *why, const char *at_once,
                        const char *wanted)
{
    CLEANUP(buf_release) struct buf out = {0};
    Ddp__V1__JobStatus job;
    sample_queued(&job);
    Ddp__V1__StartEstimate *s = job.start_estimate;
    s->position = position;
    s->start_ms = start_ms;
    s->why = (char *)(uintptr_t)why;
    s->at_once = (char *)(uintptr_t)at_once;
    assert_true(job_status_put_start(&job, terminal.now_ms, &out));
    assert_string_equal(out.data, wanted);
}

static void test_starts(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    Ddp__V1__JobStatus job;
    check_start(1, terminal.now_ms - 1, "when job 9 ends", "", "1st in line, starts soon, when job 9 ends");
    check_start(2, 0, "after job 9, whose end is unknown", "",
                "2nd in line, starts after job 9, whose end is unknown");
    check_start(11, 0, "", "", "11th in line");
    check_start(23, 0, "", "--nodes 1", "23rd in line; at once with --nodes 1");
    check_start(101, 0, "when job 1 ends on \033[2Jx", "", "101st in line, starts when job 1 ends on ?[2Jx");
    sample_running(&job);
    assert_false(job_status_put_start(&job, terminal.now_ms, &out));
    assert_int_equal(out.len, 0);
}

/* The samples share memory for progress and ranks, so the list is checked with one job that has progress. */
static void test_list(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    Ddp__V1__JobStatus jobs[2];
    Ddp__V1__JobStatus *list[] = {&jobs[0], &jobs[1]};
    Ddp__V1__ListJobsReply reply = DDP__V1__LIST_JOBS_REPLY__INIT;
    char *last[] = {(char *)(uintptr_t) "ddp-trainer: rank 3: out: No space left on device"};
    char *sick[] = {(char *)(uintptr_t) "box2 gpu1"};
    sample_running(&jobs[0]);
    sample_queued(&jobs[1]);
    reply.jobs = list;
    reply.n_jobs = 2;
    reply.nodes = 2;
    reply.slots = 64;
    reply.gpus = 8;
    reply.gpus_busy = 4;
    reply.gpus_free = 3;
    reply.gpus_sick = sick;
    reply.n_gpus_sick = 1;
    screen_jobs(&reply, false, &terminal, &out);
    golden_check("list.term", &out);
    screen_jobs(&reply, false, &narrow, &out);
    golden_check("list-narrow.term", &out);
    screen_jobs(&reply, false, &pipe_term, &out);
    golden_check("list.pipe", &out);
    sample_failed(&jobs[0]);
    reply.gpus = 0;
    reply.n_gpus_sick = 0;
    screen_jobs(&reply, false, &pipe_term, &out);
    golden_check("list-failed.pipe", &out);
    jobs[0].failure->message = (char *)(uintptr_t) "";
    jobs[0].failure->n_stderr_tail = 1;
    jobs[0].failure->stderr_tail = last;
    screen_jobs(&reply, false, &pipe_term, &out);
    assert_non_null(strstr(out.data, "  rank 3 on box1: out: No space left on device\n"));
    buf_clear(&out);
    jobs[0].reason = (char *)(uintptr_t) "rank 3 could not start on box1: train.py: Permission denied";
    screen_jobs(&reply, false, &pipe_term, &out);
    assert_non_null(strstr(out.data, jobs[0].reason));
    buf_clear(&out);
    static char *notes[] = {(char *)(uintptr_t) "disk full at /var/lib/ddp"};
    reply.notes = notes;
    reply.n_notes = 1;
    screen_jobs(&reply, false, &pipe_term, &out);
    assert_non_null(strstr(out.data, "\nNOTE: disk full at /var/lib/ddp\n"));
    buf_clear(&out);
    reply.n_notes = 0;
    reply.n_jobs = reply.nodes = reply.slots = 0;
    screen_jobs(&reply, false, &pipe_term, &out);
    golden_check("list-empty.pipe", &out);
}

/* Every block, with names and reasons that are too long for the line. */
static void test_list_blocks(void **state)
{
    (void)state;
    static const struct term wide = {.live = true, .columns = 140, .now_ms = NOW};
    CLEANUP(buf_release) struct buf out = {0};
    Ddp__V1__JobStatus jobs[20];
    Ddp__V1__JobStatus *list[ARRAY_LEN(jobs)];
    Ddp__V1__ListJobsReply reply = DDP__V1__LIST_JOBS_REPLY__INIT;
    reply.jobs = list;
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        list[i] = &jobs[i];
        if (i == 0)
            sample_running(&jobs[i]);
        else if (i < 4)
            sample_queued(&jobs[i]);
        else
            sample_failed(&jobs[i]);
        jobs[i].job = 9 + (int64_t)i;
        if (i >= 4)
            jobs[i].ended_ms += (int64_t)i * 1000;
    }
    jobs[0].name = (char *)(uintptr_t) "a-sweep-over-learning-rates-and-batch-sizes-7";
    jobs[1].reason = (char *)(uintptr_t) "on hold: `ddpctl release 10` lets it start";
    jobs[1].start_estimate = NULL;
    jobs[3].priority = 5;
    jobs[3].reason =
        (char *)(uintptr_t) "waits for 2 nodes with 4 GPUs each: the cluster has 1, 1 GPU is sick "
                            "(`ddpctl nodes` says why)";
    reply.n_jobs = ARRAY_LEN(jobs);
    reply.nodes = 2;
    reply.slots = 64;
    screen_jobs(&reply, false, &narrow, &out);
    golden_check("blocks-80.term", &out);
    screen_jobs(&reply, false, &wide, &out);
    golden_check("blocks-140.term", &out);
    screen_jobs(&reply, true, &pipe_term, &out);
    golden_check("blocks.pipe", &out);
    jobs[19].job = 3540; /* as users type it, without a comma */
    screen_jobs(&reply, true, &pipe_term, &out);
    assert_non_null(strstr(out.data, "\n3540  "));
}

static void test_nodes(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    Ddp__V1__ListNodesReply reply;
    sample_nodes(&reply);
    screen_nodes(&reply, &terminal, &out);
    golden_check("nodes.term", &out);
    screen_nodes(&reply, &narrow, &out);
    golden_check("nodes-narrow.term", &out);
    screen_nodes(&reply, &pipe_term, &out);
    golden_check("nodes.pipe", &out);
}

/* Fills the stack that the next call uses, so that a read of an uninitialized variable shows. */
static __attribute__((noinline)) void fill_stack(void)
{
    volatile char stack[16384];

    for (size_t i = 0; i < sizeof(stack); i++)
        stack[i] = 1;
}

/* No rank failed: a node was lost, or the time limit was over. */
static void test_job_failed_without_failed_rank(void **state)
{
    (void)state;
    Ddp__V1__JobStatus job;
    CLEANUP(buf_release) struct buf out = {0};
    sample_failed(&job);
    job.failure = NULL;
    fill_stack();
    screen_failure(&job, NULL, &terminal, &out);
    assert_int_equal(out.len, 0);
}

static void test_failure_without_exit(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    char node[] = "box1", why[] = "rank 0 on box1 (pid 26060) makes no progress";
    Ddp__V1__Failure failure = DDP__V1__FAILURE__INIT;
    failure.node = node;
    failure.message = why;
    for (failure.signal = 0; failure.signal <= 9; failure.signal += 9) {
        screen_failure_line(&failure, true, &out);
        assert_string_equal(out.data, why);
        buf_clear(&out);
    }
}

static void test_events(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    Ddp__V1__Event events[2] = {DDP__V1__EVENT__INIT, DDP__V1__EVENT__INIT};
    Ddp__V1__Event *list[] = {&events[0], &events[1]};
    Ddp__V1__GetEventsReply reply = DDP__V1__GET_EVENTS_REPLY__INIT;
    char yesterday[] = "submitted by ana", today[] = "rank 2 killed by signal 9\033[2J, noticed after 12 ms";
    events[0].time_ms = NOW - 86400 * INT64_C(1000);
    events[0].text = yesterday;
    events[1].time_ms = NOW - 65000;
    events[1].text = today;
    reply.events = list;
    reply.n_events = 2;
    screen_events(&reply, &pipe_term, &out);
    golden_check("events.pipe", &out);
}

/* The remedy follows the failure, on every screen that shows it; a job that is about to end is not announced as one that
 * restarts. */
static void test_a_refused_restart_is_explained(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    struct follow_view view;
    Ddp__V1__JobStatus job;
    sample_failed(&job);
    job.not_restarted = (char *)(uintptr_t) "an error of the program: not \033[2Jrestarted";
    screen_job(&job, NULL, &pipe_term, &out);
    assert_non_null(strstr(out.data, "\nan error of the program: not ?[2Jrestarted\n"));
    buf_clear(&out);
    for (int brief = 0; brief < 2; brief++) {
        job.state = (char *)(uintptr_t) "recovering";
        follow_view_init(&view, pipe_term);
        view.brief = brief;
        follow_view_update(&view, &job, &out);
        assert_non_null(strstr(out.data, "exited with code 1"));
        assert_null(strstr(out.data, "restart 3 of"));
        assert_null(strstr(out.data, "an error of the program"));
        job.state = (char *)(uintptr_t) "failed";
        follow_view_update(&view, &job, &out);
        assert_non_null(strstr(out.data, brief ? "\nddpctl: an error of the program: not ?[2Jrestarted\n"
                                               : "\nan error of the program: not ?[2Jrestarted\n"));
        buf_clear(&out);
    }
}

/* Once at the first failure, because a count of failures changes, and once when the last snapshot waits. */
static void test_failing_snapshots_are_followed(void **state)
{
    CLEANUP(buf_release) struct buf out = {0};
    struct follow_view view;
    Ddp__V1__JobStatus job;
    (void)state;
    sample_running(&job);
    for (int brief = 0; brief < 2; brief++) {
        const char *label = brief ? "ddpctl: " : "";
        follow_view_init(&view, pipe_term);
        view.brief = brief;
        follow_view_update(&view, &job, &out);
        buf_clear(&out);
        job.unsaved = (char *)(uintptr_t) "rank 0 on n1 cannot write: \033[2J";
        follow_view_update(&view, &job, &out);
        job.unsaved = (char *)(uintptr_t) "again";
        follow_view_update(&view, &job, &out);
        job.unsaved = (char *)(uintptr_t) "disk full";
        job.waits_for_space = true;
        follow_view_update(&view, &job, &out);
        job.unsaved = (char *)(uintptr_t) "";
        job.waits_for_space = false;
        follow_view_update(&view, &job, &out);
        follow_view_update(&view, &job, &out);
        CLEANUP(free_text)
        char *wanted = xasprintf("%sNOTE: rank 0 on n1 cannot write: ?[2J\n%sNOTE: disk full\n"
                                 "%ssnapshots are written again\n",
                                 label, label, label);
        assert_string_equal(out.data, wanted);
        buf_clear(&out);
    }
}

static void test_last_round(void **state)
{
    static const struct {
        const char *name;
        double value;
    } round[] = {
        {"round", 14},          {"round_steps", 50}, {"round_samples", 1600},    {"round_wait_ms", 120},
        {"round_bytes", 2.4e6}, {"round_norm", 0.5}, {"round_agreement", 0.6188}};
    Ddp__V1__Metric metrics[ARRAY_LEN(round)], *list[ARRAY_LEN(round)];
    CLEANUP(buf_release) struct buf out = {0};
    Ddp__V1__JobStatus job;
    (void)state;
    sample_running(&job);
    for (size_t i = 0; i < ARRAY_LEN(round); i++) {
        list[i] = &metrics[i];
        ddp__v1__metric__init(list[i]);
        metrics[i].name = (char *)(uintptr_t)round[i].name;
        metrics[i].value = round[i].value;
    }
    job.progress->metrics = list;
    job.progress->n_metrics = ARRAY_LEN(round);
    screen_job(&job, NULL, &pipe_term, &out);
    assert_non_null(strstr(out.data,
                           "\nround 14: 50 steps, 1,600 samples, waited 120 ms, sent 2.4 MB, norm 0.5, "
                           "agreement 0.62\n"));
    assert_null(strstr(out.data, "round_steps"));
    buf_clear(&out);
    job.progress->n_metrics = 1; /* a program's own */
    screen_job(&job, NULL, &pipe_term, &out);
    assert_non_null(strstr(out.data, "round 14"));
    assert_null(strstr(out.data, "round 14:"));
}

static void test_json(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    Ddp__V1__JobStatus job;
    Ddp__V1__ListNodesReply nodes;
    sample_running(&job);
    json_print(&job.base, &out);
    golden_check("status-running.json", &out);
    sample_failed(&job);
    json_print(&job.base, &out);
    golden_check("status-failed.json", &out);
    sample_nodes(&nodes);
    json_print(&nodes.base, &out);
    golden_check("nodes.json", &out);
}

/* A reason may quote text of the job file, such as a path. Control sequences in it must not reach a terminal.
 */
static void test_reasons_have_no_control_sequences(void **state)
{
    (void)state;
    static char reason[] = "no \033[2Jdir\nx";
    CLEANUP(buf_release) struct buf out = {0};
    struct follow_view view;
    Ddp__V1__JobStatus job, *jobs[] = {&job};
    Ddp__V1__ListJobsReply list = DDP__V1__LIST_JOBS_REPLY__INIT;
    sample_failed(&job);
    job.reason = reason;
    list.jobs = jobs;
    list.n_jobs = 1;
    screen_job(&job, NULL, &pipe_term, &out);
    screen_jobs(&list, false, &pipe_term, &out); /* shows the last line on stderr, not the reason */
    job.failure->message = reason;
    screen_jobs(&list, false, &pipe_term, &out);
    follow_view_init(&view, pipe_term);
    follow_view_update(&view, &job, &out);
    assert_null(strchr(out.data, '\033'));
    size_t seen = 0;
    for (const char *at = out.data; (at = strstr(at, "no ?[2Jdir?x")); at++)
        seen++;
    assert_int_equal(seen, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_running),
        cmocka_unit_test(test_job_queued),
        cmocka_unit_test(test_starts),
        cmocka_unit_test(test_job_failed),
        cmocka_unit_test(test_job_failed_without_failed_rank),
        cmocka_unit_test(test_job_succeeded),
        cmocka_unit_test(test_job_command),
        cmocka_unit_test(test_ranks_present),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_list_blocks),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_failure_without_exit),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_reasons_have_no_control_sequences),
        cmocka_unit_test(test_a_refused_restart_is_explained),
        cmocka_unit_test(test_failing_snapshots_are_followed),
        cmocka_unit_test(test_last_round),
        cmocka_unit_test(test_json),
    };
    setenv("TZ", "UTC", 1);
    tzset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
