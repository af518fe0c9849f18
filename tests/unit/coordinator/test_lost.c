/* A job that has committed snapshots does not begin at step 0 by itself; snapshots that fail are said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "core_test.h"

#define SNAPSHOTS "  snapshot: {dir: /out, every: 10}\n"

/* One rank on box1, of two nodes; step 1200 is committed there. */
static int64_t saved_job(struct bench *b, const char *keys)
{
    CLEANUP(free_text) char *file = xasprintf("%smax_restarts: 3\n" TRAIN SNAPSHOTS, keys);

    bench_node(b, "box1", 1);
    int64_t job = bench_submit(b, file);
    bench_all_run(b, "box1");
    bench_join(b, job, 0);
    bench_put(b, job, "id");
    assert_int_equal(bench_commit(b, job, bench_spawn(b, job, 0), 1, 1200, "d1200"), ERR_OK);
    bench_node(b, "box2", 1);
    return job;
}

static struct core_offer offer_of(int64_t job, int64_t generation, int64_t step, const char *digest)
{
    return (struct core_offer){.job = job,
                               .generation = generation,
                               .step = step,
                               .digest = digest,
                               .path = "/out/step",
                               .committed = true};
}

/* The current generation's process is there and joins. */
static void join_with(struct bench *b, int64_t job, const struct core_offer *offer, char *const *unusable)
{
    char node[32];

    snprintf(node, sizeof(node), "%s", bench_node_of(b, job, 0));
    bench_all_run(b, node);
    bench_join_telling(b, job, 0, offer, offer ? 1 : 0, unusable);
}

static void obey(struct bench *b)
{
    bench_all_obey(b, "box1");
    bench_all_obey(b, "box2");
}

static bool waits_for_them(struct bench *b, int64_t job)
{
    return bench_job(b, job) == JOB_RECOVERING && strstr(bench_waits(b, job), "waits for its snapshots: ");
}

static void a_missing_directory_is_waited_for(void **state)
{
    struct bench *b = *state;
    int64_t job = saved_job(b, "");

    bench_exit(b, job, 0, 0, 9);
    join_with(b, job, NULL, NULL);
    assert_true(waits_for_them(b, job));
    assert_non_null(strstr(bench_waits(b, job), "/out on box1 has none, step 1,200 was committed there at "));
    assert_non_null(strstr(bench_waits(b, job), "is the file system mounted?"));
    assert_non_null(strstr(bench_waits(b, job), "`ddpctl restart 1 --from-scratch` starts again at step 0"));
    assert_true(bench_said(b, "waits for its snapshots: /out on box1 has none"));
    assert_int_equal(bench_generation(b, job)->state, GENERATION_CLOSED);
    obey(b);
    bench_clear(b);
    bench_pass_beating(b, 300000, "box1 box2");
    assert_int_equal(core_job(b->core, job)->generation, 2); /* no process is started to look */
    assert_int_equal(core_job(b->core, job)->restarts_used, 1);
    assert_int_equal(bench_effects(b, EFFECT_LOOK), 2 * 10); /* both nodes, every 30 s */
    bench_looked(b, job, "box1", false);
    assert_true(waits_for_them(b, job));
    bench_looked(b, job, "box1", true);
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_string_equal(bench_node_of(b, job, 0), "box1");
    struct core_offer there = offer_of(job, 1, 1200, "d1200");
    join_with(b, job, &there, NULL);
    assert_int_equal(bench_generation(b, job)->source_step, 1200);
    bench_put(b, job, "id");
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
    assert_int_equal(core_job(b->core, job)->restarts_used, 1);
}

/* Its slots are free for others while it waits. */
static void who_waits_holds_nothing(void **state)
{
    struct bench *b = *state;
    int64_t job = saved_job(b, "");

    bench_exit(b, job, 0, 0, 9);
    join_with(b, job, NULL, NULL);
    obey(b);
    int64_t other = bench_submit(b, "nodes: 2\n");
    assert_int_equal(bench_job(b, other), JOB_STARTING);
    bench_looked(b, job, "box1", true);
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
    bench_form(b, other);
    bench_exit(b, other, 0, 0, 0);
    bench_exit(b, other, 1, 0, 0);
    assert_int_equal(bench_job(b, job), JOB_STARTING);
}

static void it_may_fail_instead(void **state)
{
    struct bench *b = *state;
    int64_t job = saved_job(b, "on_lost_snapshots: fail\n");

    bench_exit(b, job, 0, 0, 9);
    join_with(b, job, NULL, NULL);
    obey(b);
    assert_int_equal(bench_job(b, job), JOB_FAILED);
    assert_non_null(strstr(core_job(b->core, job)->reason,
                           "its snapshots cannot be found: /out on box1 has none, step 1,200"));
    assert_int_equal(core_job(b->core, job)->restarts_used, 1);
}

static void damage_is_named(void **state)
{
    struct bench *b = *state;
    char *const why[] = {(char *)"/out/step-600-g1: no such thing",
                         (char *)"/out/step: not what was committed: damaged", NULL};
    int64_t job = saved_job(b, "");

    bench_exit(b, job, 0, 0, 9);
    join_with(b, job, NULL, why);
    assert_true(waits_for_them(b, job));
    assert_non_null(
        strstr(bench_waits(b, job), "on box1 /out/step: not what was committed: damaged; step 1,200"));
    /* the files are there, and no use: a new generation is tried less and less often */
    for (int64_t i = 0, tries = core_job(b->core, job)->generation; i < 4; i++) {
        obey(b);
        bench_looked(b, job, "box1", true);
        assert_int_equal(core_job(b->core, job)->generation, tries + i + 1);
        join_with(b, job, NULL, why);
        assert_true(waits_for_them(b, job));
    }
    obey(b);
    bench_clear(b);
    bench_pass_beating(b, 479000, "box1 box2");
    assert_int_equal(bench_effects(b, EFFECT_LOOK), 0);
    bench_pass_beating(b, 2000, "box1 box2");
    assert_int_equal(bench_effects(b, EFFECT_LOOK), 2);
}

/* The newest is damaged, one before it is not. */
static void going_back_is_said(void **state)
{
    struct bench *b = *state;
    struct core_job_status status;
    char *const why[] = {(char *)"/out/step: damaged", NULL};
    struct err e;
    int64_t job = saved_job(b, "");

    bench_commit(b, job, bench_spawn(b, job, 0), 1, 800, "d800");
    bench_exit(b, job, 0, 0, 9);
    struct core_offer old = offer_of(job, 1, 800, "d800");
    join_with(b, job, &old, why);
    bench_put(b, job, "id");
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
    assert_true(bench_said(b, "went back to step 800: on box1 /out/step: damaged; step 1,200 was committed"));
    assert_int_equal(core_job_status(b->core, job, false, &status, &e), ERR_OK);
    assert_non_null(strstr(status.notes[0], "went back to step 800"));
    core_job_status_release(&status);
    bench_commit(b, job, bench_spawn(b, job, 0), 2, 900, "d900");
    assert_int_equal(core_job_status(b->core, job, false, &status, &e), ERR_OK);
    assert_null(status.notes);
    core_job_status_release(&status);
}

/* Committed here, and changed before COMMITTED.json was there: the worker cannot know. */
static void other_bytes_are_damage(void **state)
{
    struct bench *b = *state;
    int64_t job = saved_job(b, "");
    struct core_offer changed = offer_of(job, 1, 1200, "other");

    changed.committed = false;
    bench_exit(b, job, 0, 0, 9);
    join_with(b, job, &changed, NULL);
    assert_true(waits_for_them(b, job));
    assert_non_null(
        strstr(bench_waits(b, job), "on box1 /out/step: the files are not the ones that were committed"));
}

/* Snapshots of a node's own disk, and that node is lost. */
static void the_node_that_has_them_is_waited_for(void **state)
{
    struct bench *b = *state;
    int64_t job = saved_job(b, "");

    bench_pass_beating(b, 10000, "box2"); /* box1 is lost */
    assert_string_equal(bench_node_of(b, job, 0), "box2");
    join_with(b, job, NULL, NULL);
    assert_true(waits_for_them(b, job));
    assert_non_null(strstr(bench_waits(b, job), "step 1,200 was committed on box1 (lost) at "));
    assert_non_null(strstr(bench_waits(b, job), "and /out on box2 has none"));
    obey(b);
    bench_clear(b);
    bench_hello(b, "box1", "box1", 1, 0);
    bench_facts(b, "box1", NULL, 0);
    bench_pass_beating(b, 1, "box1 box2");
    assert_int_equal(bench_effects(b, EFFECT_LOOK), 2); /* at once */
    bench_looked(b, job, "box2", false);
    bench_looked(b, job, "box1", true);
    assert_string_equal(bench_node_of(b, job, 0), "box1"); /* not where it was last */
    struct core_offer there = offer_of(job, 1, 1200, "d1200");
    join_with(b, job, &there, NULL);
    assert_int_equal(bench_generation(b, job)->source_step, 1200);
}

/* A place without its snapshots is of no use to it, and others can use it. */
static void nodes_without_them_are_free_for_others(void **state)
{
    struct bench *b = *state;
    int64_t job = saved_job(b, "");

    bench_pass_beating(b, 10000, "box2"); /* box1 is lost */
    join_with(b, job, NULL, NULL);
    assert_true(waits_for_them(b, job));
    obey(b);
    bench_hello(b, "box1", "box1", 1, 0);
    bench_facts(b, "box1", NULL, 0);
    bench_operator(b, CORE_DRAIN, "box1");
    bench_looked(b, job, "box1", true);
    assert_non_null(strstr(bench_waits(b, job), "waits for a place on box1"));
    int64_t other = bench_submit(b, "");
    assert_int_equal(bench_job(b, other), JOB_STARTING);
    assert_string_equal(bench_node_of(b, other, 0), "box2");
    assert_int_equal(bench_job(b, job), JOB_RECOVERING);
}

static void from_scratch_is_meant(void **state)
{
    struct bench *b = *state;
    struct core_job_status status;
    struct err e;
    int64_t job = saved_job(b, "");

    bench_exit(b, job, 0, 0, 9);
    join_with(b, job, NULL, NULL);
    obey(b);
    assert_int_equal(bench_from_scratch(b, job), ERR_OK);
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    assert_true(bench_said(b, "its snapshots up to step 1,200 no longer count, and are set aside in "
                              "/out/set-aside-g2 where they are found"));
    struct core_offer old = offer_of(job, 1, 1200, "d1200"); /* it is there after all */
    join_with(b, job, &old, NULL);
    assert_int_equal(bench_generation(b, job)->source_rank, -1);
    bench_put(b, job, "id");
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
    assert_true(bench_said(b, "from scratch, as the user asked"));
    assert_int_equal(core_job_status(b->core, job, false, &status, &e), ERR_OK);
    assert_null(status.snapshot);
    core_job_status_release(&status);
    /* what comes now counts, over our restart too, and what was before does not come back */
    bench_commit(b, job, bench_spawn(b, job, 0), 3, 10, "d10");
    bench_exit(b, job, 0, 0, 9);
    bench_restart(b);
    bench_hello(b, "box1", "box1", 1, 0);
    bench_facts(b, "box1", NULL, 0);
    bench_pass_beating(b, 2000, "box1");
    join_with(b, job, &old, NULL);
    assert_true(waits_for_them(b, job));
    assert_non_null(strstr(bench_waits(b, job), "step 10 was committed"));
}

/* A user's restart tries at once, and is no word for step 0. */
static void a_plain_restart_tries_again(void **state)
{
    struct bench *b = *state;
    int64_t job = saved_job(b, "");

    bench_exit(b, job, 0, 0, 9);
    join_with(b, job, NULL, NULL);
    obey(b);
    assert_int_equal(bench_restart_job(b, job), ERR_OK);
    assert_int_equal(bench_job(b, job), JOB_STARTING);
    join_with(b, job, NULL, NULL);
    assert_true(waits_for_them(b, job));
    bench_cancel(b, job, false);
    obey(b);
    assert_int_equal(bench_job(b, job), JOB_CANCELLED);
}

static void commands_have_no_scratch(void **state)
{
    struct bench *b = *state;

    bench_node(b, "box1", 1);
    int64_t job = bench_submit(b, COMMAND);
    bench_form(b, job);
    assert_int_equal(bench_from_scratch(b, job), ERR_FAILED_PRECONDITION);
    assert_int_equal(bench_job(b, job), JOB_RUNNING);
}

static char *notes_of(struct bench *b, int64_t job)
{
    struct core_job_status status;
    struct err e;

    assert_int_equal(core_job_status(b->core, job, false, &status, &e), ERR_OK);
    char *note = status.notes ? xstrdup(status.notes[0]) : NULL;
    core_job_status_release(&status);
    return note;
}

static void failing_snapshots_are_said_until_they_work(void **state)
{
    struct bench *b = *state;
    int64_t job = saved_job(b, "");

    for (int64_t step = 1300; step < 1600; step += 100) {
        assert_int_equal(bench_snapshot_failed(b, job, 0, step, "/out/.tmp: No space left on device"),
                         ERR_OK);
        assert_int_equal(bench_snapshot_failed(b, job, 0, step, "/out/.tmp: No space left on device"),
                         ERR_OK);
        bench_pass_beating(b, 5000, "box1 box2");
    }
    assert_true(
        bench_said(b, "rank 0 on box1 could not write the snapshot of step 1,300: /out/.tmp: No space"));
    assert_false(bench_said(b, "could not write the snapshot of step 1,400"));
    CLEANUP(free_text) char *note = notes_of(b, job);
    assert_non_null(strstr(note, "rank 0 on box1 cannot write snapshots since "));
    assert_non_null(strstr(note, "(3 failures, the last at step 1,500): /out/.tmp: No space left on device"));
    bench_commit(b, job, bench_spawn(b, job, 0), 1, 1600, "d1600");
    assert_true(bench_said(b, "rank 0 on box1 writes snapshots again: step 1,600, after 3 failures in 15 s"));
    assert_null(notes_of(b, job));
}

static void a_stranger_cannot_say_that_snapshots_fail(void **state)
{
    struct bench *b = *state;
    int64_t job = saved_job(b, "");
    int64_t old = bench_spawn(b, job, 0);
    struct core_event event = {.kind = CORE_SNAPSHOT_FAILED, .call = ++b->handles};

    bench_exit(b, job, 0, 0, 9);
    event.member.job = job;
    event.member.spawn = old;
    event.snapshot.step = 5;
    core_event(b->core, &event, b->now, &b->out);
    assert_int_equal(bench_reply(b, event.call)->err.code, ERR_ABORTED);
    assert_null(notes_of(b, job));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, bench_setup, bench_teardown)

static bool noted(const struct bench *b, int64_t job, const char *text)
{
    struct core_job_status status;
    struct err e;
    bool found = false;

    assert_int_equal(core_job_status(b->core, job, false, &status, &e), ERR_OK);
    for (char **note = status.notes; note && *note; note++)
        found |= strstr(*note, text) != NULL;
    core_job_status_release(&status);
    return found;
}

/* The interval is 10 steps. */
static void a_job_that_gets_on_unsaved_is_said(void **state)
{
    struct bench *b = *state;
    int64_t job = saved_job(b, "");

    bench_report(b, job, 0, 1220, "loss", 1);
    bench_pass_beating(b, 9000, "box1 box2");
    bench_report(b, job, 0, 1300, "loss", 1); /* a coordinator that restarts is away so long */
    assert_false(bench_said(b, "has not been able to save"));
    bench_pass_beating(b, 2000, "box1 box2");
    bench_report(b, job, 0, 1310, "loss", 1);
    bench_report(b, job, 0, 1320, "loss", 1);
    assert_true(bench_said(b, "job 1 has not been able to save since step 1,200 (11"));
    assert_true(noted(b, job, "1 of its 1 ranks do not reach the coordinator"));
    assert_int_equal(bench_commit(b, job, bench_spawn(b, job, 0), 1, 1330, "d1330"), ERR_OK);
    assert_true(bench_said(b, "step 1,330 is saved, after 11"));
    assert_false(noted(b, job, "has not been able to save"));
}

static void slow_snapshots_are_given_more_time(void **state)
{
    struct bench *b = *state;
    int64_t job = saved_job(b, "");

    bench_watch(b, job, bench_spawn(b, job, 0));
    bench_pass_beating(b, 50000, "box1 box2");
    bench_report(b, job, 0, 1300, "loss", 1);
    assert_false(bench_said(b, "has not been able to save"));
    bench_pass_beating(b, 11000, "box1 box2");
    bench_report(b, job, 0, 1310, "loss", 1);
    assert_true(noted(b, job, "no snapshot was committed in more than two intervals"));
}

static void the_next_interval_is_waited_for(void **state)
{
    struct bench *b = *state;
    int64_t job = saved_job(b, "");

    bench_pass_beating(b, 300000, "box1 box2");
    bench_report(b, job, 0, 1220, "loss", 1); /* two intervals, no more */
    assert_false(bench_said(b, "has not been able to save"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_missing_directory_is_waited_for),
        TEST(who_waits_holds_nothing),
        TEST(it_may_fail_instead),
        TEST(damage_is_named),
        TEST(going_back_is_said),
        TEST(other_bytes_are_damage),
        TEST(the_node_that_has_them_is_waited_for),
        TEST(nodes_without_them_are_free_for_others),
        TEST(from_scratch_is_meant),
        TEST(a_plain_restart_tries_again),
        TEST(commands_have_no_scratch),
        TEST(failing_snapshots_are_said_until_they_work),
        TEST(a_stranger_cannot_say_that_snapshots_fail),
        TEST(a_job_that_gets_on_unsaved_is_said),
        TEST(slow_snapshots_are_given_more_time),
        TEST(the_next_interval_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
