/* A job that is tuned, seen from rank 0's link: Join and Watch bring the job file, and Watch says which one is in use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>

#include "base/mem.h"
#include "tests/unit/trainer/member/link/fake_coordinator.h"
#include "trainer/member/link/join.h"
#include "trainer/member/link/tuning.h"
#include "trainer/member/link/watch.h"

static const struct link_join plain_join = {.address = (const uint8_t *)"here", .address_size = 4};

static void note_over(void *arg, int64_t generation)
{
    atomic_store((_Atomic int64_t *)arg, generation);
}

static void a_new_job_file_comes_by_watch_and_its_use_is_told(void **state)
{
    struct link *link = worker_link_open();
    _Atomic int64_t over = 0;
    struct link_group g;
    struct err e = {0};
    int64_t revision = 0;

    (void)state;
    fake_coordinator_open();
    assert_int_equal(link_join(link, link_first_member(link), &plain_join, &g, &e), ERR_OK);
    assert_null(g.job_file); /* it was never tuned */
    assert_int_equal(link_watch(link, note_over, &over, &e), ERR_OK);
    WAIT_FOR(fake.watches == 1);
    assert_false(link_tune_asked(link));
    assert_null(link_take_tuning(link, &revision));
    fake.revision = 1;
    fake_coordinator_send_watch();
    WAIT_FOR(link_tune_asked(link));
    CLEANUP(free_text) char *text = link_take_tuning(link, &revision);
    assert_string_equal(text, "of Watch");
    assert_int_equal(revision, 1);
    assert_true(link_tune_asked(link)); /* until it is in use */
    link_tuned(link, 1, 600);
    assert_false(link_tune_asked(link));
    WAIT_FOR(fake.told_revision == 1);
    assert_int_equal(fake.told_step, 600);
    fake.revision = 2; /* a change that comes while the last one is taken over */
    fake_coordinator_send_watch();
    WAIT_FOR(link_tune_asked(link));
    link_tuned(link, 1, 600);
    assert_true(link_tune_asked(link));
    link_unwatch(link);
    link_group_release(&g);
    link_close(link);
    fake_coordinator_close();
}

static void join_brings_the_job_file_of_a_tuned_job(void **state)
{
    struct link *link = worker_link_open();
    _Atomic int64_t over = 0;
    struct link_group g;
    struct err e = {0};

    (void)state;
    fake.revision = 3;
    fake_coordinator_open();
    assert_int_equal(link_join(link, link_first_member(link), &plain_join, &g, &e), ERR_OK);
    assert_string_equal(g.job_file, "of Join");
    assert_int_equal(g.revision, 3);
    assert_false(link_tune_asked(link));
    link_tuned(link, g.revision, 0);
    assert_int_equal(link_watch(link, note_over, &over, &e), ERR_OK);
    WAIT_FOR(fake.told_revision == 3);
    assert_int_equal(fake.told_step, 0);
    assert_false(link_tune_asked(link));
    link_unwatch(link);
    link_group_release(&g);
    link_close(link);
    fake_coordinator_close();
}

/* A short run may be over before the Watch thread looks again. */
static void a_worker_that_ends_has_told_what_is_in_use(void **state)
{
    struct link *link = worker_link_open();
    _Atomic int64_t over = 0;
    struct link_group g;
    struct err e = {0};

    (void)state;
    fake_coordinator_open();
    assert_int_equal(link_join(link, link_first_member(link), &plain_join, &g, &e), ERR_OK);
    assert_int_equal(link_watch(link, note_over, &over, &e), ERR_OK);
    WAIT_FOR(fake.watches == 1);
    link_tuned(link, 2, 90);
    link_await_told(link);
    assert_int_equal(fake.told_revision, 2);
    assert_int_equal(fake.told_step, 90);
    link_unwatch(link);
    link_group_release(&g);
    link_close(link);
    fake_coordinator_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_new_job_file_comes_by_watch_and_its_use_is_told, fake_coordinator_reset),
        cmocka_unit_test_setup(join_brings_the_job_file_of_a_tuned_job, fake_coordinator_reset),
        cmocka_unit_test_setup(a_worker_that_ends_has_told_what_is_in_use, fake_coordinator_reset),
    };

    return cmocka_run_group_tests(tests, fake_coordinator_make_directory, fake_coordinator_remove_directory);
}
