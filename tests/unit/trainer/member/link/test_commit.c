/* Tests how a worker commits snapshots at the coordinator, and how it reports that a snapshot could not be
 * written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "tests/unit/trainer/member/link/fake_coordinator.h"
#include "trainer/member/link/commit.h"
#include "trainer/member/link/internal.h"
#include "trainer/member/link/watch.h"

static const struct link_snapshot snapshot = {
    .step = 120, .bytes = 99, .digest = "cafe", .path = "/snap/120"};

struct committer {
    struct link *link;
    enum err_code rc;
};

static void *commit_in_thread(void *arg)
{
    struct committer *c = arg;
    struct err e = {0};

    c->rc = link_commit_snapshot(c->link, &snapshot, &e);
    return NULL;
}

static void a_commit_waits_until_the_coordinator_is_back_and_has_room(void **state)
{
    struct committer c = {.link = worker_link_open()};
    pthread_t thread;

    (void)state;
    fake.refuse = ERR_RESOURCE_EXHAUSTED;
    assert_int_equal(pthread_create(&thread, NULL, commit_in_thread, &c), 0);
    fake_coordinator_open();
    WAIT_FOR(fake.commits >= 2);
    fake_coordinator_close();
    fake.refuse = 0;
    fake_coordinator_open();
    pthread_join(thread, NULL);
    assert_int_equal(c.rc, ERR_OK);
    assert_string_equal(fake.digest, "cafe@120");
    link_close(c.link);
    fake_coordinator_close();
}

static void a_commit_of_a_part_waits_for_the_others(void **state)
{
    const struct link_snapshot part = {.step = 120, .bytes = 9, .parts = 2};
    struct link *link = worker_link_open();
    struct err e = {0};

    (void)state;
    fake.pending_commits = 3;
    fake_coordinator_open();
    assert_int_equal(link_commit_snapshot(link, &part, &e), ERR_OK);
    assert_int_equal(fake.commits, 4);
    assert_int_equal(fake.parts, 2);
    assert_string_equal(fake.digest, "@120");
    link_close(link);
    fake_coordinator_close();
}

static void *commit_a_part_in_a_thread(void *arg)
{
    const struct link_snapshot part = {.step = 120, .bytes = 9, .parts = 2};
    struct committer *c = arg;
    struct err e = {0};

    c->rc = link_commit_snapshot(c->link, &part, &e);
    return NULL;
}

static void a_wait_for_the_others_can_be_called_off(void **state)
{
    struct committer c = {.link = worker_link_open()};
    pthread_t thread;

    (void)state;
    fake.pending_commits = INT_MAX;
    fake_coordinator_open();
    assert_int_equal(pthread_create(&thread, NULL, commit_a_part_in_a_thread, &c), 0);
    WAIT_FOR(fake.commits > 1);
    link_cancel(c.link);
    pthread_join(thread, NULL);
    assert_int_equal(c.rc, ERR_CANCELLED);
    link_close(c.link);
    fake_coordinator_close();
}

/* In use the wait is ten minutes: a rank that hangs in its file system must not stop all snapshots for ever. */
static void a_wait_for_the_others_is_bounded(void **state)
{
    const struct link_snapshot part = {.step = 120, .bytes = 9, .parts = 2};
    struct link *link = worker_link_open();
    struct err e = {0};

    (void)state;
    fake.pending_commits = INT_MAX;
    fake_coordinator_open();
    link_set_parts_wait(link, 1);
    assert_int_equal(link_commit_snapshot(link, &part, &e),
                     ERR_ABORTED); /* all ranks hear that it has failed */
    assert_non_null(strstr(e.msg, "another rank has not written its part in "));
    assert_int_equal(fake.failed_step, 120);
    link_close(link);
    fake_coordinator_close();
}

/* The other ranks wait with it, so the snapshot has not failed: Watch does not say so either. */
static void a_snapshot_that_waits_for_space_has_not_failed(void **state)
{
    const struct err full = {ERR_RESOURCE_EXHAUSTED, "/out: No space left on device"};
    struct link *link = worker_link_open();

    (void)state;
    fake_coordinator_open();
    link_snapshot_waits(link, 120, &full, 9000);
    assert_string_equal(fake.failure, "120: /out: No space left on device");
    assert_int_equal(fake.failure_waits_ms, 9000);
    assert_int_equal(link->failed_step, 0); /* which Watch sends */
    link_snapshot_failure(link, 120, &full);
    assert_int_equal(fake.failure_waits_ms, 0);
    assert_int_equal(link->failed_step, 120);
    link_close(link);
    fake_coordinator_close();
}

static void on_over_ignore(void *arg, int64_t generation)
{
    (void)arg, (void)generation;
}

/* It would take the first writer's call for a whole snapshot. */
static void an_older_coordinator_gets_no_part(void **state)
{
    const struct link_snapshot part = {.step = 120, .bytes = 9, .parts = 2};
    struct link *link = worker_link_open();
    struct err e = {0};

    (void)state;
    fake.old_parts = true;
    fake_coordinator_open();
    assert_int_equal(link_watch(link, on_over_ignore, NULL, &e), ERR_OK);
    assert_int_equal(link_commit_snapshot(link, &part, &e), ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "update the coordinator"));
    assert_int_equal(fake.commits, 0);
    fake_coordinator_close();
    fake.old_parts = false; /* a newer coordinator takes over */
    fake_coordinator_open();
    WAIT_FOR(link_commit_snapshot(link, &part, &e) == ERR_OK);
    link_unwatch(link);
    link_close(link);
    fake_coordinator_close();
}

/* The coordinator keeps the report in memory only, and the other ranks wait for this rank's part. */
static void a_failure_is_reported_again_to_a_coordinator_that_restarted(void **state)
{
    struct link *link = worker_link_open();
    struct err why = {0}, e = {0};

    (void)state;
    fake_coordinator_open();
    assert_int_equal(link_watch(link, on_over_ignore, NULL, &e), ERR_OK);
    WAIT_FOR(fake.watches == 1);
    assert_int_equal(fake.watched_failure, 0);
    err_set(&why, ERR_RESOURCE_EXHAUSTED, "/snap: No space left on device");
    link_snapshot_failure(link, 120, &why);
    fake_coordinator_close();
    fake_coordinator_open();
    WAIT_FOR(fake.watches == 2);
    assert_int_equal(fake.watched_failure, 120);
    link_unwatch(link);
    link_close(link);
    fake_coordinator_close();
}

static void a_stale_commit_is_refused(void **state)
{
    struct committer c = {.link = worker_link_open()};

    (void)state;
    fake.refuse = ERR_ABORTED;
    fake_coordinator_open();
    commit_in_thread(&c);
    assert_int_equal(c.rc, ERR_ABORTED);
    link_close(c.link);
    fake_coordinator_close();
}

static void a_snapshot_failure_is_reported(void **state)
{
    struct link *link = worker_link_open();
    struct err why = {0};

    (void)state;
    fake_coordinator_open();
    err_set(&why, ERR_ABORTED, "another generation is current");
    link_snapshot_failure(link, 110, &why);
    assert_string_equal(fake.failure, ""); /* this generation was over, so the failure is not reported */
    err_set(&why, ERR_RESOURCE_EXHAUSTED, "/snap/\xff: No space left on device");
    link_snapshot_failure(link, 120, &why);
    assert_string_equal(fake.failure, "120: /snap/?: No space left on device");
    fake.refuse = ERR_UNIMPLEMENTED; /* a coordinator of the version before is not asked again */
    link_snapshot_failure(link, 130, &why);
    assert_string_equal(fake.failure, "130: /snap/?: No space left on device");
    link_close(link);
    fake_coordinator_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_commit_waits_until_the_coordinator_is_back_and_has_room,
                               fake_coordinator_reset),
        cmocka_unit_test_setup(a_commit_of_a_part_waits_for_the_others, fake_coordinator_reset),
        cmocka_unit_test_setup(a_wait_for_the_others_can_be_called_off, fake_coordinator_reset),
        cmocka_unit_test_setup(a_wait_for_the_others_is_bounded, fake_coordinator_reset),
        cmocka_unit_test_setup(a_snapshot_that_waits_for_space_has_not_failed, fake_coordinator_reset),
        cmocka_unit_test_setup(an_older_coordinator_gets_no_part, fake_coordinator_reset),
        cmocka_unit_test_setup(a_failure_is_reported_again_to_a_coordinator_that_restarted,
                               fake_coordinator_reset),
        cmocka_unit_test_setup(a_stale_commit_is_refused, fake_coordinator_reset),
        cmocka_unit_test_setup(a_snapshot_failure_is_reported, fake_coordinator_reset),
    };

    return cmocka_run_group_tests(tests, fake_coordinator_make_directory, fake_coordinator_remove_directory);
}
