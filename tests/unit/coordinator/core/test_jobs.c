/* Submits, which snapshots a job continues from, retention, status. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "daemon/coordinator/core/wish.h"
#include "tests/unit/coordinator/core/core_fixture.h"

#define FILE_A "device: cpu\n" COMMAND
#define IN_OUT TRAIN "  snapshot: {dir: /out, every: 10}\n"

static const struct core_effect *submit_with(struct core_fixture *f, struct core_event event)
{
    event.kind = CORE_SUBMIT;
    event.call = ++f->handles;
    digest_sha256(event.submit.digest, event.submit.job_file, strlen(event.submit.job_file));
    core_event(f->core, &event, f->now, &f->out);
    return fixture_reply(f, event.call);
}

static const struct core_effect *submit_as(struct core_fixture *f, const char *user, char *const *env,
                                           const char *id, const char *file, int64_t continues, bool resume)
{
    struct core_event event = {0};

    event.submit.request_id = id;
    event.submit.job_file = file;
    event.submit.user = user;
    event.submit.env = env;
    event.submit.continues = continues;
    event.submit.resume = resume;
    return submit_with(f, event);
}

static const struct core_effect *submit_request(struct core_fixture *f, const char *id, const char *file,
                                                int64_t continues, bool resume)
{
    return submit_as(f, "ana", NULL, id, file, continues, resume);
}

static void one_request_is_one_job(void **state)
{
    struct core_fixture *f = *state;
    const struct core_effect *reply = submit_request(f, "a", FILE_A, 0, false);
    int64_t job = reply->job;

    assert_false(reply->existed);
    reply = submit_request(f, "a", FILE_A, 0, false);
    assert_true(reply->existed);
    assert_int_equal(reply->job, job);
    assert_int_equal(submit_request(f, "a", "priority: 2\n" FILE_A, 0, false)->err.code, ERR_ALREADY_EXISTS);
    assert_int_equal(submit_request(f, "b", FILE_A, 0, false)->job, job + 1);
    assert_int_equal(submit_request(f, "", FILE_A, 0, false)->err.code, ERR_INVALID_ARGUMENT);
}

static void a_huge_environment_is_refused(void **state)
{
    struct core_fixture *f = *state;
    CLEANUP(free_text) char *value = xasprintf("X=%0*d", 300 << 10, 1);
    char *env[] = {value, NULL};
    struct core_event event = {.kind = CORE_SUBMIT, .call = ++f->handles};

    event.submit.request_id = "a";
    event.submit.job_file = FILE_A;
    event.submit.user = "ana";
    event.submit.env = env;
    core_event(f->core, &event, f->now, &f->out);
    assert_int_equal(fixture_reply(f, event.call)->err.code, ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(fixture_reply(f, event.call)->err.msg, "export less"));
    value[200 << 10] = '\0';
    core_event(f->core, &event, f->now, &f->out);
    assert_int_equal(fixture_reply(f, event.call)->err.code, ERR_OK);
}

/* Each name is compared with all others, here and on the nodes. */
static void an_environment_with_very_many_variables_is_refused(void **state)
{
    struct core_fixture *f = *state;
    CLEANUP(free_text) char *entry = xstrdup("A=");
    char *env[WISH_VARIABLES + 2] = {NULL};

    for (size_t i = 0; i < WISH_VARIABLES; i++)
        env[i] = entry;
    const struct core_effect *reply = submit_as(f, "ana", env, "a", FILE_A, 0, false);
    assert_int_equal(reply->err.code, ERR_OK);
    const int64_t former = reply->job;
    env[WISH_VARIABLES] = entry;
    reply = submit_as(f, "ana", env, "b", FILE_A, 0, false);
    assert_int_equal(reply->err.code, ERR_INVALID_ARGUMENT);
    assert_string_equal(reply->err.msg,
                        "the environment has 2049 variables, and at most 2048 are allowed: export fewer");
    /* inherited variables count, too */
    char *one[] = {(char *)"B=", NULL};
    reply = submit_as(f, "ana", one, "c", FILE_A, former, false);
    assert_non_null(strstr(reply->err.msg, "2049 variables"));
}

/* Jobs that were recorded earlier may have such keys, so they only cause a warning. */
static void keys_without_an_effect_are_said(void **state)
{
    struct core_fixture *f = *state;
    static const struct {
        const char *file, *said;
    } cases[] = {
        {"device: cuda\ngpus_per_proc: 2\n" TRAIN, "a rank of a train job computes on one GPU"},
        {"device: cpu\n" TRAIN "  schedule: {warmup: 2, min_lr: 1.0e-4}\n", "schedule.min_lr has no effect"},
        {"device: cpu\n" TRAIN "  schedule: {type: linear, min_lr: 1.0e-4}\n", NULL},
        {"device: cuda\ngpus_per_proc: 2\n" COMMAND, NULL},
    };

    fixture_hello(f, "box1", "i", 2, 2);
    fixture_facts(f, "box1", NULL, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char id[] = {(char)('a' + i), '\0'};
        const struct core_effect *reply = submit_request(f, id, cases[i].file, 0, false);
        assert_int_equal(reply->err.code, ERR_OK);
        assert_int_equal(strv_len(reply->texts), cases[i].said != NULL);
        if (cases[i].said)
            assert_non_null(strstr(reply->texts[0], cases[i].said));
    }
}

static void one_request_is_one_job_after_a_coordinator_restart(void **state)
{
    struct core_fixture *f = *state;
    int64_t job = fixture_submit(f, "");
    char id[32];

    snprintf(id, sizeof(id), "r%d", (int)f->handles);
    fixture_restart(f);
    const struct core_effect *reply = submit_request(f, id, "device: cpu\n" COMMAND, 0, false);
    assert_true(reply->existed);
    assert_int_equal(reply->job, job);
    assert_int_equal(fixture_submit(f, ""), job + 1);
}

static void a_bad_job_file_error_names_the_line(void **state)
{
    struct core_fixture *f = *state;
    const struct core_effect *reply = submit_request(f, "a", "nodes: 1\nslotz: 2\n" COMMAND, 0, false);

    assert_int_equal(reply->err.code, ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(reply->err.msg, "job file:2:1"));
}

static void a_lease_outlasts_the_silence_of_a_node(void **state)
{
    struct core_fixture *f = *state;

    assert_int_equal(submit_request(f, "a", "lease: 11s\n" COMMAND, 0, false)->err.code,
                     ERR_INVALID_ARGUMENT);
    assert_int_equal(submit_request(f, "b", "lease: 12s\n" COMMAND, 0, false)->err.code, ERR_OK);
}

static int64_t finished_with_snapshot_and_env(struct core_fixture *f, char *const *env)
{
    fixture_node(f, "box1", 1);
    int64_t job = submit_as(f, "ana", env, "first", "device: cpu\n" IN_OUT, 0, false)->job;
    fixture_form(f, job);
    fixture_commit(f, job, fixture_spawn(f, job, 0), 1, 4500, "d");
    fixture_exit(f, job, 0, 0, 0);
    assert_int_equal(fixture_job(f, job), JOB_SUCCEEDED);
    return job;
}

static int64_t finished_with_snapshot(struct core_fixture *f)
{
    return finished_with_snapshot_and_env(f, NULL);
}

static void a_directory_with_snapshots_of_another_job_is_refused(void **state)
{
    struct core_fixture *f = *state;

    finished_with_snapshot(f);
    const struct core_effect *reply = submit_request(f, "a", IN_OUT, 0, false);
    assert_int_equal(reply->err.code, ERR_FAILED_PRECONDITION);
    assert_string_equal(reply->err.msg,
                        "/out holds snapshots of job 1 (step 4500); use --resume to continue from them, or "
                        "--set train.snapshot.dir=/out2");
    int64_t next = submit_request(f, "b", IN_OUT, 0, true)->job;
    assert_int_equal(core_job(f->core, next)->continues, 1);
    reply = submit_request(f, "c", IN_OUT, 0, true); /* and two jobs never write one directory */
    assert_int_equal(reply->err.code, ERR_FAILED_PRECONDITION);
}

static const struct core_effect *submit_as_ben(struct core_fixture *f, const char *id, const char *file,
                                               int64_t continues, bool resume)
{
    return submit_as(f, "ben", NULL, id, file, continues, resume);
}

static void snapshots_of_another_user_are_not_continued(void **state)
{
    struct core_fixture *f = *state;
    const int64_t anas = finished_with_snapshot(f);
    const int64_t bens =
        submit_as_ben(f, "a", "device: cpu\n" TRAIN "  snapshot: {dir: /ben}\n", 0, false)->job;
    fixture_form(f, bens);
    fixture_commit(f, bens, fixture_spawn(f, bens, 0), 1, 10, "d");
    fixture_exit(f, bens, 0, 0, 0);
    const struct core_effect *reply = submit_as_ben(f, "b", IN_OUT "  resume: continue\n", 0, false);
    assert_int_equal(reply->err.code, ERR_PERMISSION_DENIED);
    assert_string_equal(reply->err.msg,
                        "/out holds snapshots of job 1, which belongs to ana: only its owner or the "
                        "role operate may continue from them; use --set train.snapshot.dir=/out2");
    assert_int_equal(submit_as_ben(f, "c", IN_OUT, 0, true)->err.code, ERR_PERMISSION_DENIED);
    assert_int_equal(submit_as_ben(f, "d", IN_OUT, bens, true)->err.code, ERR_PERMISSION_DENIED);
    struct core_event event = {.submit = {.request_id = "e",
                                          .job_file = "nodes: 2\n" IN_OUT,
                                          .user = "olga",
                                          .resume = true,
                                          .for_everybody = true}};
    const int64_t next = submit_with(f, event)->job;
    assert_int_equal(core_job(f->core, next)->continues, anas);
}

static void a_job_that_never_started_keeps_its_directory_from_its_own_user_only(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    assert_int_equal(submit_as_ben(f, "a", "hold: true\n" IN_OUT, 0, false)->err.code, ERR_OK);
    assert_int_equal(submit_as_ben(f, "b", IN_OUT, 0, false)->err.code, ERR_FAILED_PRECONDITION);
    const struct core_effect *reply = submit_request(f, "c", "device: cpu\n" IN_OUT, 0, false);
    assert_int_equal(reply->err.code, ERR_OK);
    fixture_form(f, reply->job);
    reply = submit_as_ben(f, "d", IN_OUT, 0, true);
    assert_int_equal(reply->err.code, ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(reply->err.msg, "/out is the snapshot directory of job 2, which is running"));
}

static void a_continued_job_starts_from_the_last_snapshot(void **state)
{
    struct core_fixture *f = *state;
    struct core_offer offer = {.job = 1, .generation = 1, .step = 4500, .digest = "d", .path = "/out/4500"};
    int64_t former = finished_with_snapshot(f);
    int64_t job = submit_request(f, "a", "device: cpu\n" IN_OUT, former, false)->job;

    fixture_all_run(f, "box1");
    fixture_join_with(f, job, 0, &offer, 1);
    assert_int_equal(fixture_generation(f, job)->source_rank, 0);
    assert_int_equal(fixture_generation(f, job)->source_step, 4500);
    assert_int_equal(submit_request(f, "x", FILE_A, 99, false)->err.code, ERR_NOT_FOUND);
    assert_int_equal(submit_request(f, "y", FILE_A, job, false)->err.code, ERR_FAILED_PRECONDITION);
}

/* /out/. is another name of /out, so the submit does not see whose directory it is. */
static void an_offer_of_another_user_is_not_loaded(void **state)
{
    struct core_fixture *f = *state;
    struct core_offer offer = {
        .job = 1, .generation = 1, .step = 4500, .digest = "d", .path = "/out/4500", .committed = true};
    static const char file[] = "device: cpu\n" TRAIN "  snapshot: {dir: /out/.}\n  resume: continue\n";

    finished_with_snapshot(f);
    const int64_t bens = submit_as_ben(f, "a", file, 0, false)->job;
    fixture_all_run(f, "box1");
    fixture_join_with(f, bens, 0, &offer, 1);
    assert_int_equal(fixture_generation(f, bens)->source_rank, -1);
    fixture_cancel(f, bens, true);
    fixture_exit(f, bens, 0, 143, 0);
    const int64_t anas = submit_request(f, "b", file, 0, false)->job;
    fixture_all_run(f, "box1");
    fixture_join_with(f, anas, 0, &offer, 1);
    assert_int_equal(fixture_generation(f, anas)->source_step, 4500);
}

static void assert_environment(const struct core_fixture *f, int64_t job, const char *wanted)
{
    CLEANUP(buf_release) struct buf all = {0};

    for (char *const *entry = core_job(f->core, job)->env; entry && *entry; entry++)
        buf_printf(&all, "%s ", *entry);
    assert_string_equal(all.data ? all.data : "", wanted);
}

#define WAITS "nodes: 2\ndevice: cpu\n" IN_OUT

static void a_continued_job_keeps_the_environment(void **state)
{
    struct core_fixture *f = *state;
    char *first[] = {(char *)"PATH=/venv", (char *)"KEY=a", NULL};
    char *second[] = {(char *)"KEY=b", (char *)"KEYS=c", NULL};
    const int64_t job = finished_with_snapshot_and_env(f, first);

    fixture_restart(f);
    const int64_t same = submit_request(f, "b", WAITS, job, false)->job;
    assert_environment(f, same, "PATH=/venv KEY=a ");
    fixture_cancel(f, same, true);
    const int64_t changed = submit_as(f, "ana", second, "c", WAITS, job, false)->job;
    assert_environment(f, changed, "KEY=b KEYS=c PATH=/venv ");
    fixture_cancel(f, changed, true);
    /* a new submit that takes the snapshots over brings an environment of its own */
    assert_environment(f, submit_request(f, "d", WAITS, 0, true)->job, "");
}

static void an_environment_is_not_given_to_another_user(void **state)
{
    struct core_fixture *f = *state;
    char *secret[] = {(char *)"KEY=a", NULL}, *own[] = {(char *)"PATH=/b", NULL};
    const int64_t job = finished_with_snapshot_and_env(f, secret);
    const struct core_effect *reply = submit_as(f, "olga", own, "b", "device: cpu\n" IN_OUT, job, false);

    assert_int_equal(strv_len(reply->texts), 1);
    assert_non_null(strstr(reply->texts[0], "was submitted by another user"));
    assert_environment(f, reply->job, "PATH=/b ");
}

static void an_inherited_environment_counts_towards_the_limit(void **state)
{
    struct core_fixture *f = *state;
    CLEANUP(free_text) char *large = xasprintf("X=%0*d", 200 << 10, 1);
    CLEANUP(free_text) char *more = xasprintf("Y=%0*d", 100 << 10, 1);
    char *first[] = {large, NULL}, *second[] = {more, NULL};
    const int64_t job = finished_with_snapshot_and_env(f, first);

    assert_int_equal(submit_as(f, "ana", second, "b", WAITS, job, false)->err.code, ERR_INVALID_ARGUMENT);
}

static void old_finished_jobs_are_removed(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, ""), waiting = fixture_submit(f, "nodes: 3\n");
    fixture_form(f, job);
    fixture_exit(f, job, 0, 0, 0);
    f->now.boot_ms += f->config.retain_jobs_ms - 120000;
    f->now.wall_ms += f->config.retain_jobs_ms - 120000;
    fixture_pass(f, 61000);
    assert_non_null(core_job(f->core, job));
    fixture_pass(f, 120000);
    assert_null(core_job(f->core, job));
    assert_non_null(core_job(f->core, waiting));
    assert_true(fixture_submit(f, "") > waiting); /* ids are never used again */
}

static int count_events(const struct core_fixture *f, const char *what)
{
    int count = 0;

    for (size_t i = 0; i < f->out.change_count; i++)
        count += f->out.changes[i].kind == CHANGE_EVENT && !strcmp(f->out.changes[i].event->what, what);
    return count;
}

static void a_clock_that_is_ahead_removes_nothing_at_once(void **state)
{
    struct core_fixture *f = *state;
    const int64_t ahead = f->config.retain_jobs_ms + 86400000;

    const int64_t job = fixture_submit(f, "");
    fixture_cancel(f, job, true);
    fixture_pass(f, 61000);
    assert_true(f->kept.clock_ms > 0);
    for (int start = 0; start < 2; start++) { /* a restart begins a new hour */
        f->now.wall_ms += start == 0 ? ahead : 0;
        fixture_restart(f);
        assert_int_equal(count_events(f, "clock_ahead"), 1);
        fixture_pass(f, 50 * 60000);
        assert_true(core_holds_ages(f->core, f->now));
        assert_non_null(core_job(f->core, job));
    }
    f->now.wall_ms -= ahead; /* somebody corrects it */
    fixture_pass(f, 61000);
    assert_false(core_holds_ages(f->core, f->now));
    fixture_pass(f, 2 * 3600000);
    assert_non_null(core_job(f->core, job));
    fixture_clear(f);
    f->now.wall_ms += ahead; /* set while the coordinator runs */
    assert_true(core_holds_ages(f->core, f->now));
    fixture_pass(f, 50 * 60000);
    assert_int_equal(count_events(f, "clock_ahead"), 1);
    assert_non_null(core_job(f->core, job));
    fixture_pass(f, 15 * 60000); /* nobody does, so it is right */
    assert_false(core_holds_ages(f->core, f->now));
    assert_null(core_job(f->core, job));
}

static void of_too_many_finished_jobs_the_oldest_end_is_removed(void **state)
{
    struct core_fixture *f = *state;
    int64_t job[4];

    f->config.retain_jobs = 2;
    fixture_restart(f);
    for (int i = 0; i < 4; i++)
        job[i] = fixture_submit(f, "");
    for (int i = 3; i >= 0; i--) { /* the first one lasts longest */
        fixture_cancel(f, job[i], true);
        fixture_pass(f, 1000);
    }
    fixture_pass(f, 120000);
    assert_non_null(core_job(f->core, job[0]));
    assert_non_null(core_job(f->core, job[1]));
    assert_null(core_job(f->core, job[2]));
    assert_null(core_job(f->core, job[3]));
}

static enum err_code cancel_by(struct core_fixture *f, int64_t job, int signal)
{
    struct core_event event = {.kind = CORE_CANCEL, .call = ++f->handles};

    event.cancel.job = job;
    event.cancel.signal = signal;
    core_event(f->core, &event, f->now, &f->out);
    return fixture_reply(f, event.call)->err.code;
}

/* The signal of which the node has been told, and with which a restarted coordinator goes on. */
static void check_stop_signal(struct core_fixture *f, int64_t job, int signal)
{
    struct core_wish wish;
    struct err e;

    assert_int_equal(core_job(f->core, job)->stop_signal, signal);
    assert_int_equal(core_wish(f->core, "box1", &wish, &e), ERR_OK);
    assert_int_equal(wish.groups[0].stop_signal, signal);
    core_wish_release(&wish);
}

static void the_first_signal_of_a_cancel_stays(void **state)
{
    struct core_fixture *f = *state;

    fixture_node(f, "box1", 1);
    int64_t job = fixture_submit(f, COMMAND);
    fixture_all_run(f, "box1");
    fixture_clear(f);
    assert_int_equal(cancel_by(f, job, 2), ERR_OK);
    assert_int_equal(cancel_by(f, job, 10), ERR_OK);
    assert_int_equal(fixture_effects(f, EFFECT_WISH), 1); /* and the node hears of one */
    check_stop_signal(f, job, 2);
    fixture_restart(f);
    check_stop_signal(f, job, 2);
    assert_int_equal(fixture_job(f, job), JOB_STOPPING);
}

static void a_cancel_with_an_invalid_signal_is_refused(void **state)
{
    struct core_fixture *f = *state;
    const int invalid[] = {-1, 65, 1 << 20};

    int64_t job = fixture_submit(f, COMMAND);
    for (size_t i = 0; i < sizeof(invalid) / sizeof(*invalid); i++)
        assert_int_equal(cancel_by(f, job, invalid[i]), ERR_INVALID_ARGUMENT);
    assert_int_equal(fixture_job(f, job), JOB_QUEUED);
    assert_int_equal(core_job(f->core, job)->stop_signal, 0);
    assert_int_equal(cancel_by(f, job, 64), ERR_OK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_request_is_one_job),
        TEST(a_huge_environment_is_refused),
        TEST(an_environment_with_very_many_variables_is_refused),
        TEST(keys_without_an_effect_are_said),
        TEST(one_request_is_one_job_after_a_coordinator_restart),
        TEST(a_bad_job_file_error_names_the_line),
        TEST(a_lease_outlasts_the_silence_of_a_node),
        TEST(a_directory_with_snapshots_of_another_job_is_refused),
        TEST(snapshots_of_another_user_are_not_continued),
        TEST(an_offer_of_another_user_is_not_loaded),
        TEST(a_job_that_never_started_keeps_its_directory_from_its_own_user_only),
        TEST(a_continued_job_starts_from_the_last_snapshot),
        TEST(a_continued_job_keeps_the_environment),
        TEST(an_environment_is_not_given_to_another_user),
        TEST(an_inherited_environment_counts_towards_the_limit),
        TEST(the_first_signal_of_a_cancel_stays),
        TEST(a_cancel_with_an_invalid_signal_is_refused),
        TEST(old_finished_jobs_are_removed),
        TEST(a_clock_that_is_ahead_removes_nothing_at_once),
        TEST(of_too_many_finished_jobs_the_oldest_end_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
