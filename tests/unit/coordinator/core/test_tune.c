/* Values of a train job that change while it runs: what is recorded, which rank hears of it, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/unit/coordinator/core/core_fixture.h"

#define SNAPSHOTS "  snapshot: {dir: /out, every: 10}\n"
#define ROUNDS "  sync: {type: diloco, every: 100}\n"

static int64_t two_ranks(struct core_fixture *f, const char *file)
{
    fixture_node(f, "box1", 1);
    fixture_node(f, "box2", 1);
    int64_t job = fixture_submit(f, file);
    fixture_form(f, job);
    return job;
}

static const struct core_effect *last_reply(const struct core_fixture *f)
{
    return fixture_reply(f, f->handles);
}

/* Of the status; "": none. */
static const char *note_of(struct core_fixture *f, int64_t job)
{
    static char text[256];
    struct core_job_status status;
    struct err e = {0};

    assert_int_equal(core_job_status(f->core, job, false, &status, &e), ERR_OK);
    snprintf(text, sizeof(text), "%s", status.notes ? status.notes[0] : "");
    core_job_status_release(&status);
    return text;
}

static void a_new_value_is_recorded_and_told_to_rank_0(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\n" TRAIN SNAPSHOTS);
    uint64_t zero = fixture_watch(f, job, fixture_spawn(f, job, 0));
    uint64_t one = fixture_watch(f, job, fixture_spawn(f, job, 1));

    assert_false(fixture_reply(f, zero)->tune);
    fixture_clear(f);
    assert_int_equal(fixture_tune(f, job, "optimizer.lr=0.5"), ERR_OK);
    const struct core_effect *reply = last_reply(f);
    assert_string_equal(reply->texts[0], "optimizer.lr");
    assert_string_equal(reply->texts[1], "0.001");
    assert_string_equal(reply->texts[2], "0.5");
    assert_null(reply->texts[3]);
    assert_string_equal(reply->when, "at the next step");
    assert_int_equal(reply->revision, 1);
    assert_true(fixture_said(f, "ana tuned optimizer.lr 0.001 -> 0.5"));
    assert_non_null(strstr(core_job(f->core, job)->job_file, "\"lr\": 0.5"));
    assert_true(core_job_spec(f->core, job)->train.optimizer.lr == 0.5);
    assert_true(fixture_reply(f, zero)->tune && fixture_reply(f, zero)->member);
    assert_false(fixture_reply(f, one)->tune);
    assert_string_equal(note_of(f, job), "tuned values are not in use yet: they apply at the next step");
    /* the transaction holds both */
    size_t both = 0;
    for (size_t i = 0; i < f->out.change_count; i++)
        both += f->out.changes[i].kind == CHANGE_JOB_PUT || f->out.changes[i].kind == CHANGE_EVENT;
    assert_int_equal(both, 2);
}

static void the_step_is_said_once_it_is_known(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\n" TRAIN SNAPSHOTS ROUNDS);
    int64_t spawn = fixture_spawn(f, job, 0);

    assert_int_equal(fixture_tune(f, job, "sync.every=200"), ERR_OK);
    assert_string_equal(last_reply(f)->when, "at the end of the round");
    assert_int_equal(fixture_tune(f, job, "sync.mix=0.7"), ERR_OK);
    fixture_watch_telling(f, job, spawn, 1, 100); /* another change came since */
    assert_false(fixture_said(f, "in use"));
    assert_string_equal(note_of(f, job),
                        "tuned values are not in use yet: they apply at the end of the round");
    fixture_watch_telling(f, job, fixture_spawn(f, job, 1), 2, 100); /* only rank 0 counts */
    assert_false(fixture_said(f, "in use"));
    uint64_t watch = fixture_watch_telling(f, job, spawn, 2, 1200);
    assert_true(fixture_said(f, "tuned values are in use from step 1,201 on"));
    assert_false(fixture_reply(f, watch)->tune);
    assert_string_equal(note_of(f, job), "");
    fixture_clear(f);
    fixture_watch_telling(f, job, spawn, 2, 1200); /* a worker that reconnects says it again */
    assert_int_equal(f->out.change_count, 0);
}

static void values_survive_the_coordinator_and_the_generation(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\nmax_restarts: 3\n" TRAIN SNAPSHOTS);

    assert_int_equal(fixture_tune(f, job, "optimizer.lr=0.5"), ERR_OK);
    fixture_restart(f);
    fixture_hello(f, "box1", "box1", 1, 0);
    fixture_hello(f, "box2", "box2", 1, 0);
    assert_true(core_job_spec(f->core, job)->train.optimizer.lr == 0.5);
    assert_int_equal(core_job(f->core, job)->revision, 1);
    fixture_all_run(f, "box1");
    fixture_all_run(f, "box2");
    uint64_t zero = fixture_watch(f, job, fixture_spawn(f, job, 0));
    assert_true(fixture_reply(f, zero)->tune);
    assert_int_equal(fixture_restart_job(f, job), ERR_OK);
    fixture_all_obey(f, "box1");
    fixture_all_obey(f, "box2");
    assert_int_equal(core_job(f->core, job)->generation, 2);
    assert_string_equal(note_of(f, job), "tuned values are not in use yet: they apply when the job runs");
    fixture_form(f, job);
    assert_int_equal(fixture_reply(f, fixture_join(f, job, 0))->rank, 0); /* whose answer has the job file */
    assert_int_equal(fixture_reply(f, fixture_join(f, job, 1))->rank, 1);
    fixture_watch_telling(f, job, fixture_spawn(f, job, 0), 1, 0);
    assert_true(fixture_said(f, "tuned values are in use from step 1 on"));
}

/* The worker uses a revision that these records do not know. Its node may have a card that does; if not, the records
 * count. */
static void an_older_database_counts_only_if_no_card_is_newer(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\n" TRAIN SNAPSHOTS), spawn = fixture_spawn(f, job, 0);

    fixture_restart(f);
    uint64_t zero = fixture_watch_telling(f, job, spawn, 3, 500);
    assert_false(fixture_reply(f, zero)->tune);
    fixture_clear(f);
    fixture_hello(f, "box1", "box1", 1, 0);
    assert_true(fixture_reply(f, zero)->tune);
    zero = fixture_watch_telling(f, job, spawn, 3, 500);
    assert_true(fixture_reply(f, zero)->tune);
    assert_false(fixture_said(f, "in use"));
}

static void equal_values_change_nothing(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\n" TRAIN SNAPSHOTS);

    fixture_clear(f);
    assert_int_equal(fixture_tune(f, job, "optimizer.lr=1e-3"), ERR_OK);
    assert_true(last_reply(f)->existed);
    assert_null(last_reply(f)->texts);
    assert_int_equal(f->out.change_count, 0);
}

static void values_of_the_coordinator_apply_at_once(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\nmax_restarts: 0\n" TRAIN SNAPSHOTS);

    assert_int_equal(fixture_tune(f, job, "max_restarts=1"), ERR_OK);
    assert_string_equal(last_reply(f)->when, "now");
    assert_string_equal(note_of(f, job), "");
    fixture_exit(f, job, 0, 1, 0);
    assert_int_equal(fixture_job(f, job), JOB_RECOVERING);
}

static void a_resize_outlives_a_tune(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\n" TRAIN SNAPSHOTS);

    assert_int_equal(fixture_resize(f, job, 1, 2), ERR_OK);
    assert_int_equal(fixture_tune(f, job, "log_every=7"), ERR_OK);
    assert_int_equal(core_job_spec(f->core, job)->nodes_min, 1);
}

static void a_queued_job_starts_with_the_values(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_submit(f, TRAIN);

    assert_int_equal(fixture_tune(f, job, "log_every=7"), ERR_OK);
    assert_string_equal(last_reply(f)->when, "when the job runs");
}

static void other_jobs_and_values_are_refused(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\n" TRAIN SNAPSHOTS), command = fixture_submit(f, "");

    fixture_clear(f);
    assert_int_equal(fixture_tune(f, 99, "log_every=7"), ERR_NOT_FOUND);
    assert_int_equal(fixture_tune(f, command, "max_restarts=7"), ERR_FAILED_PRECONDITION);
    assert_string_equal(last_reply(f)->err.msg, "job 2 is a command job: only train jobs can be tuned");
    assert_int_equal(fixture_tune(f, job, "batch=7"), ERR_FAILED_PRECONDITION);
    assert_int_equal(fixture_tune(f, job, "optimizer.lr=-1"), ERR_INVALID_ARGUMENT);
    assert_int_equal(fixture_tune(f, job, "log_evry=3"), ERR_INVALID_ARGUMENT);
    assert_string_equal(last_reply(f)->err.msg, "unknown key 'log_evry', did you mean 'log_every'?");
    assert_int_equal(f->out.change_count, 0);
    fixture_cancel(f, job, false);
    assert_int_equal(fixture_tune(f, job, "log_every=7"), ERR_FAILED_PRECONDITION);
    assert_string_equal(last_reply(f)->err.msg, "job 1 is stopping");
}

static void a_full_disk_keeps_the_report_for_later(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\n" TRAIN SNAPSHOTS);

    assert_int_equal(fixture_tune(f, job, "log_every=7"), ERR_OK);
    fixture_clear(f);
    struct core_event event = {
        .kind = CORE_WATCH, .call = ++f->handles, .watch = {.generation = 1, .revision = 1, .step = 50}};
    event.member.job = job;
    event.member.spawn = fixture_spawn(f, job, 0);
    core_event(f->core, &event, f->now, &f->out);
    assert_int_equal(f->out.change_count, 0);
    assert_true(fixture_reply(f, event.call)->member);
    fixture_watch_telling(f, job, event.member.spawn, 1, 50);
    assert_true(fixture_said(f, "tuned values are in use from step 51 on"));
}

/* A node's card must be as new as the records: a tuned job may have to come back from it. */
static void a_card_is_newer_after_a_tune(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = two_ranks(f, "nodes: 2\n" TRAIN SNAPSHOTS);
    struct core_card_head head = {.job = job};

    while (core_wants_card(f->core, "box1", &(struct core_card_head){job, head.progress}) == false &&
           head.progress < INT64_C(1) << 40)
        head.progress += 1 << 16; /* the next one would be newer than the records */
    head.progress -= 1 << 16;
    while (!core_wants_card(f->core, "box1", &head))
        head.progress++;
    assert_true(core_wants_card(f->core, "box1", &head));
    assert_int_equal(fixture_tune(f, job, "log_every=7"), ERR_OK);
    assert_false(core_wants_card(f->core, "box1", &head));
}

/* The printed file has two characters for each quote. */
static void a_job_file_that_becomes_too_long_is_refused(void **state)
{
    struct core_fixture *f = *state;
    CLEANUP(free_text) char *quotes = xcalloc(200 << 10, 1);

    memset(quotes, '"', (200 << 10) - 1);
    CLEANUP(free_text) char *file = xasprintf("nodes: 2\nenv: {A: '%s'}\n" TRAIN SNAPSHOTS, quotes);
    int64_t job = two_ranks(f, file);

    assert_int_equal(fixture_tune(f, job, "log_every=7"), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(last_reply(f)->err.msg, "at most 256 KiB are allowed"));
    assert_int_equal(fixture_order(f, CORE_PRIORITY, job, 5, false), ERR_INVALID_ARGUMENT);
    assert_null(strstr(core_job(f->core, job)->job_file, "log_every"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_value_is_recorded_and_told_to_rank_0),
        TEST(the_step_is_said_once_it_is_known),
        TEST(values_survive_the_coordinator_and_the_generation),
        TEST(an_older_database_counts_only_if_no_card_is_newer),
        TEST(equal_values_change_nothing),
        TEST(values_of_the_coordinator_apply_at_once),
        TEST(a_resize_outlives_a_tune),
        TEST(a_queued_job_starts_with_the_values),
        TEST(other_jobs_and_values_are_refused),
        TEST(a_full_disk_keeps_the_report_for_later),
        TEST(a_card_is_newer_after_a_tune),
        TEST(a_job_file_that_becomes_too_long_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
