#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/screen/screen_follow.h"
#include "tests/unit/client/golden.h"
#include "tests/unit/client/samples.h"

/* Tests what --follow prints from the start of a job to its end, on a terminal and in a pipe. */

static char queued[] = "queued", starting[] = "starting", running[] = "running", recovering[] = "recovering",
            no_reason[] = "", waits[] = "waits for 2 CPU slots: job 7", tokens[] = "tokens";

static void update_at(struct follow_view *v, int64_t ms, const Ddp__V1__JobStatus *job, struct buf *out)
{
    v->term.now_ms = NOW + ms;
    follow_view_update(v, job, out);
}

static void play_job(struct term term, struct buf *out)
{
    struct follow_view v;
    Ddp__V1__JobStatus job;
    follow_view_init(&v, term);
    sample_running(&job);
    size_t nodes = job.n_nodes;
    int64_t *step = &job.progress->step;
    job.generation = 0;
    job.n_nodes = 0;
    job.restarts_used = 0;
    job.state = queued;
    job.reason = waits;
    *step = 0;
    job.progress->n_metrics = 0;
    update_at(&v, 0, &job, out);
    update_at(&v, 500, &job, out); /* nothing is new, so a pipe gets nothing */
    job.state = starting;
    job.reason = no_reason;
    job.generation = 1;
    job.n_nodes = nodes;
    update_at(&v, 1000, &job, out);
    job.joined = 3;
    update_at(&v, 1020, &job, out);
    job.state = running;
    job.joined = 4;
    job.progress->n_metrics = 9;
    update_at(&v, 1038, &job, out);
    *step = 10;
    update_at(&v, 3100, &job, out);
    *step = 20;
    update_at(&v, 3200, &job, out); /* too soon for a pipe */
    *step = 30;
    update_at(&v, 6000, &job, out);
    follow_view_away(&v, out);
    follow_view_away(&v, out);
    *step = 40;
    update_at(&v, 9000, &job, out);
    Ddp__V1__JobStatus failed;
    struct Ddp__V1__Progress kept = *job.progress;
    sample_failed(&failed);
    *job.progress = kept;
    job.failure = failed.failure;
    job.failure->generation = 1;
    job.state = recovering;
    job.restarts_used = 1;
    update_at(&v, 9500, &job, out);
    update_at(&v, 9600, &job, out); /* printed once */
    job.state = running;
    job.generation = 2;
    update_at(&v, 9900, &job, out);
    *step = 50;
    update_at(&v, 12000, &job, out);
    sample_succeeded(&failed);
    failed.job = 9;
    failed.progress->metrics[3]->name = tokens;
    failed.progress->metrics[3]->value = 12.5e6;
    update_at(&v, 13000, &failed, out);
    update_at(&v, 13001, &failed, out); /* the job has ended already: nothing is printed */
}

/* A job that ends before a running state was seen still gets its first line, before the failure. */
static void test_failure_before_running(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    struct follow_view v;
    Ddp__V1__JobStatus job;
    static char stopping[] = "stopping";
    follow_view_init(&v, (struct term){0});
    sample_failed(&job);
    job.state = stopping;
    update_at(&v, 0, &job, &out);
    assert_memory_equal(out.data, "#8 ", 3);
    assert_non_null(strstr(out.data, "rank 3 on "));
    assert_null(strstr(out.data, " started"));
    size_t len = out.len;
    update_at(&v, 10, &job, &out);
    assert_int_equal(out.len, len);
}

/* No snapshot is read, although there is one. */
static void test_generation_that_continues_from_memory(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    struct follow_view v;
    Ddp__V1__JobStatus job;
    follow_view_init(&v, (struct term){0});
    sample_running(&job);
    job.generation = 1;
    update_at(&v, 0, &job, &out);
    job.generation = 2;
    job.live = true;
    update_at(&v, 10, &job, &out);
    assert_non_null(
        strstr(out.data, "generation 2 on box1 (2), box2 (2), continues from the memory of its ranks\n"));
}

static void test_ranks_that_are_missing(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    struct follow_view v;
    Ddp__V1__JobStatus job;
    follow_view_init(&v, (struct term){0});
    sample_running(&job);
    job.ranks_present = job.ranks_wanted = 4;
    update_at(&v, 0, &job, &out);
    job.progress->step++;
    update_at(&v, 3000, &job, &out);
    assert_null(strstr(out.data, "of 4 ranks"));
    job.ranks_present = 3;
    job.missing = (char *)(uintptr_t) "box3 is drained";
    job.progress->step++;
    update_at(&v, 6000, &job, &out);
    assert_non_null(strstr(out.data, "  3 of 4 ranks: box3 is drained\n"));
}

static void test_job_in_a_pipe(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    play_job((struct term){0}, &out);
    golden_check("follow.pipe", &out);
}

static void test_job_on_a_terminal(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    play_job((struct term){.live = true, .colour = true, .columns = 100}, &out);
    golden_check("follow.term", &out);
}

static void test_narrow_terminal_is_never_wrapped(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    play_job((struct term){.live = true, .columns = 40}, &out);
    golden_check("follow-narrow.term", &out);
}

static void test_failure_names_the_next_command(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    struct follow_view v;
    Ddp__V1__JobStatus job;
    follow_view_init(&v, (struct term){0});
    sample_failed(&job);
    update_at(&v, 0, &job, &out);
    golden_check("follow-failed.pipe", &out);
}

static void test_brief_prints_failures_only(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    struct follow_view v;
    Ddp__V1__JobStatus job;
    follow_view_init(&v, (struct term){0});
    v.brief = true;
    sample_running(&job);
    update_at(&v, 0, &job, &out);
    assert_int_equal(out.len, 0);
    sample_failed(&job);
    update_at(&v, 10, &job, &out);
    golden_check("follow-brief.pipe", &out);
}

/* When a rank dies, its connections close before its end is seen, so a peer may be named first. */
static void test_corrected_first_failure_is_printed(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    struct follow_view v;
    Ddp__V1__JobStatus job;
    char stopping[] = "stopping";
    for (int brief = 0; brief < 2; brief++) {
        follow_view_init(&v, (struct term){0});
        v.brief = brief;
        sample_failed(&job);
        job.state = stopping;
        update_at(&v, 0, &job, &out);
        assert_non_null(strstr(out.data, "rank 3 on box1"));
        buf_clear(&out);
        job.failure->rank = 1;
        update_at(&v, 10, &job, &out);
        assert_non_null(strstr(out.data, "rank 1 on box1"));
        buf_clear(&out);
        update_at(&v, 20, &job, &out);
        assert_int_equal(out.len, 0);
    }
}

static bool is_any_rank(void *user, int rank)
{
    (void)rank;
    (*(int *)user)++;
    return true;
}

/* Of a command whose output is printed, a failure is one line. Its last lines are printed only if the caller says that they are
 * not on the screen. */
static void test_failure_of_a_command_that_streams(void **state)
{
    (void)state;
    static char stopping[] = "stopping", command[] = "command", failed[] = "failed";
    for (int seen = 0; seen < 2; seen++) {
        CLEANUP(buf_release) struct buf out = {0};
        struct follow_view v;
        Ddp__V1__JobStatus job;
        int asked = 0;
        follow_view_init(&v, (struct term){0});
        v.streams = true;
        v.seen = seen ? is_any_rank : NULL;
        v.seen_by = &asked;
        sample_failed(&job);
        job.kind = command;
        job.state = stopping;
        update_at(&v, 0, &job, &out);
        assert_non_null(strstr(
            out.data, "\nddpctl: rank 3 on box1 exited with code 1: FloatingPointError: loss is nan\n"));
        assert_null(strstr(out.data, "  | "));
        buf_clear(&out);
        job.state = failed;
        update_at(&v, 10, &job, &out);
        assert_null(strstr(out.data, "rank 3 on box1"));
        assert_int_equal(strstr(out.data, "  |     main()\n") != NULL, !seen);
        assert_non_null(strstr(out.data, "#8 failed after 51m30s: all 3 restarts used, "));
        assert_int_equal(asked, seen);
    }
}

/* The next generation may have ended before the failure is printed. */
static void test_restart_is_named_after_it_has_ended(void **state)
{
    (void)state;
    static char succeeded[] = "succeeded";
    CLEANUP(buf_release) struct buf out = {0};
    struct follow_view v;
    Ddp__V1__JobStatus job;
    follow_view_init(&v, (struct term){0});
    v.streams = true;
    sample_failed(&job);
    job.state = succeeded;
    job.restarts_used = 1;
    job.generation = job.failure->generation + 1;
    update_at(&v, 0, &job, &out);
    assert_non_null(strstr(out.data, "loss is nan; restart 1 of 3\n"));
}

/* The steps that a command reports are shown until it writes something. */
static void test_view_yields_to_output(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    struct follow_view v;
    Ddp__V1__JobStatus job;
    follow_view_init(&v, (struct term){.live = true, .columns = 80});
    v.streams = true;
    sample_running(&job);
    update_at(&v, 0, &job, &out);
    assert_non_null(strstr(out.data, "step "));
    buf_clear(&out);
    follow_view_yield(&v, &out);
    assert_string_equal(out.data, "\r\033[K");
    buf_clear(&out);
    job.progress->step++;
    update_at(&v, 5000, &job, &out);
    assert_int_equal(out.len, 0);
}

/* The error file often says what the last line on stderr says. */
static void test_message_is_not_said_twice(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    struct follow_view v;
    Ddp__V1__JobStatus job;
    follow_view_init(&v, (struct term){0});
    sample_failed(&job);
    job.failure->message = job.failure->stderr_tail[job.failure->n_stderr_tail - 1];
    update_at(&v, 0, &job, &out);
    assert_non_null(strstr(out.data, "\nrank 3 on box1 exited with code 1\n  | "));
}

static void test_brief_prints_the_end_of_training(void **state)
{
    (void)state;
    CLEANUP(buf_release) struct buf out = {0};
    struct follow_view v;
    Ddp__V1__JobStatus job;
    for (int told = 0; told < 2; told++) {
        follow_view_init(&v, (struct term){0});
        v.brief = true;
        v.tells_end = told;
        sample_running(&job);
        update_at(&v, 0, &job, &out);
        sample_succeeded(&job);
        update_at(&v, 10, &job, &out);
        if (!told)
            assert_int_equal(out.len, 0);
    }
    assert_string_equal(out.data, "ddpctl: succeeded in 9m41s: val 89.1 %, 1 restart, out/step-5000\n");
}

/* When a run is interrupted, ddpctl says how to continue it. */
static void test_brief_prints_the_end_of_cancelled_training(void **state)
{
    (void)state;
    char cancelled[] = "cancelled", by_ana[] = "by ana";
    CLEANUP(buf_release) struct buf out = {0};
    struct follow_view v;
    Ddp__V1__JobStatus job;
    follow_view_init(&v, (struct term){0});
    v.brief = v.tells_end = true;
    sample_running(&job);
    update_at(&v, 0, &job, &out);
    sample_succeeded(&job);
    job.state = cancelled;
    job.reason = by_ana;
    update_at(&v, 10, &job, &out);
    assert_string_equal(out.data,
                        "ddpctl: cancelled after 9m41s: val 89.1 %, 1 restart, out/step-5000: by ana\n"
                        "   to continue, type the command again with --set train.resume=continue\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failure_before_running),
        cmocka_unit_test(test_generation_that_continues_from_memory),
        cmocka_unit_test(test_ranks_that_are_missing),
        cmocka_unit_test(test_job_in_a_pipe),
        cmocka_unit_test(test_job_on_a_terminal),
        cmocka_unit_test(test_narrow_terminal_is_never_wrapped),
        cmocka_unit_test(test_failure_names_the_next_command),
        cmocka_unit_test(test_brief_prints_failures_only),
        cmocka_unit_test(test_corrected_first_failure_is_printed),
        cmocka_unit_test(test_failure_of_a_command_that_streams),
        cmocka_unit_test(test_restart_is_named_after_it_has_ended),
        cmocka_unit_test(test_view_yields_to_output),
        cmocka_unit_test(test_message_is_not_said_twice),
        cmocka_unit_test(test_brief_prints_the_end_of_training),
        cmocka_unit_test(test_brief_prints_the_end_of_cancelled_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
