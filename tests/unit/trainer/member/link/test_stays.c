/* Tests the link of a process that outlives its generation against a fake coordinator: what Join and Watch say of it, and
 * the coordinator's word about the time after the generation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>

#include "tests/unit/trainer/member/link/fake_coordinator.h"
#include "trainer/member/link/join.h"
#include "trainer/member/link/tuning.h"
#include "trainer/member/link/watch.h"

static const struct link_join plain_join = {.address = (const uint8_t *)"here", .address_size = 4};
static atomic_int heard, over_calls;

static void count_word(void)
{
    atomic_fetch_add(&heard, 1);
}

static void count_over(void *arg, int64_t generation)
{
    (void)arg, (void)generation;
    atomic_fetch_add(&over_calls, 1);
}

/* A member of generation 4, which is watched. */
static struct link *stay_in_generation_four(void)
{
    struct link *link = worker_link_open();
    struct link_group g;
    struct err e = {0};

    heard = over_calls = 0;
    fake_coordinator_open();
    link_set_stays(link, true, count_word);
    assert_int_equal(link_join(link, link_first_member(link), &plain_join, &g, &e), ERR_OK);
    link_group_release(&g);
    assert_int_equal(link_watch(link, count_over, NULL, &e), ERR_OK);
    WAIT_FOR(fake.watches > 0);
    return link;
}

static void watch_says(bool wait, bool next, int generation, int rank)
{
    fake.watch_wait = wait;
    fake.watch_next = next;
    fake.watch_generation = generation;
    fake.watch_rank = rank;
    fake_coordinator_send_watch();
}

static void join_says_that_the_process_stays_and_which_state_it_has(void **state)
{
    struct link *link = worker_link_open();
    struct link_join join = plain_join;
    struct link_group g;
    struct err e = {0};

    (void)state;
    fake_coordinator_open();
    fake.alone = true;
    assert_int_equal(link_join(link, link_first_member(link), &join, &g, &e), ERR_OK);
    assert_false(fake.joined_stays || g.live);
    assert_int_equal(fake.live_step, 0);
    assert_int_equal(g.source_rank, -1);
    link_group_release(&g);
    link_set_stays(link, true, count_word);
    join.live_step = 321;
    join.computes = "cpu:avx2 \xff";
    assert_int_equal(link_join(link, link_first_member(link), &join, &g, &e), ERR_OK);
    assert_true(fake.joined_stays && g.live);
    assert_int_equal(fake.live_step, 321);
    assert_string_equal(fake.said, DDP_VERSION " cpu:avx2 ?");
    assert_int_equal(g.source_rank, 0);
    assert_int_equal(g.source.step, 321);
    link_group_release(&g);
    link_close(link);
    fake_coordinator_close();
}

static void watch_tells_a_coordinator_at_once_when_a_process_stays_no_more(void **state)
{
    struct link *link = stay_in_generation_four();

    (void)state;
    assert_true(fake.watched_stays);
    link_set_stays(link, false, count_word);
    WAIT_FOR(!fake.watched_stays);
    assert_false(link_over(link));
    link_close(link);
    fake_coordinator_close();
}

static void a_process_that_stays_is_told_to_wait_and_then_what_to_join(void **state)
{
    struct link *link = stay_in_generation_four();
    struct link_member next;
    struct link_group g;
    struct err e = {0};

    (void)state;
    assert_int_equal(link_after(link, &next), LINK_SILENT);
    watch_says(true, false, 4, 0);
    WAIT_FOR(over_calls == 1);
    assert_int_equal(link_after(link, &next), LINK_WAIT);
    assert_true(heard > 0);
    /* The coordinator restarts: the next stream says the same again. */
    fake_coordinator_close();
    fake_coordinator_open();
    assert_int_equal(link_after(link, &next), LINK_WAIT);
    heard = 0;
    watch_says(false, true, 6, 1);
    WAIT_FOR(link_after(link, &next) == LINK_JOIN);
    WAIT_FOR(heard > 0);
    assert_int_equal(next.generation, 6);
    assert_int_equal(next.rank, 1);
    assert_int_equal(over_calls, 1);

    /* The last word was about generation 4. */
    link_unwatch(link);
    fake.generation = 6;
    fake.watch_next = false;
    assert_int_equal(link_join(link, &next, &plain_join, &g, &e), ERR_OK);
    assert_int_equal(g.rank, 1);
    link_group_release(&g);
    assert_int_equal(link_after(link, &next), LINK_SILENT);
    WAIT_FOR(fake.watched_generation == 6);
    assert_int_equal(link_after(link, &next), LINK_SILENT);
    assert_false(link_over(link));
    watch_says(true, false, 6, 0);
    WAIT_FOR(link_after(link, &next) == LINK_WAIT);
    link_close(link);
    fake_coordinator_close();
}

static void a_later_generation_that_failed_in_turn_is_followed_by_another_word(void **state)
{
    struct link *link = stay_in_generation_four();
    struct link_member next;
    struct link_group g;
    struct err e = {0};

    (void)state;
    watch_says(false, true, 5, 0);
    WAIT_FOR(link_after(link, &next) == LINK_JOIN);
    fake.generation = 5;
    fake.refuse = ERR_ABORTED;
    assert_int_equal(link_join(link, &next, &plain_join, &g, &e), ERR_ABORTED);
    watch_says(true, false, 5, 0);
    WAIT_FOR(link_after(link, &next) == LINK_WAIT);
    watch_says(false, true, 6, 0);
    WAIT_FOR(link_after(link, &next) == LINK_JOIN && next.generation == 6);
    link_close(link);
    fake_coordinator_close();
}

static void a_process_that_is_not_wanted_is_dismissed(void **state)
{
    struct link *link = stay_in_generation_four();
    struct link_member next;

    (void)state;
    watch_says(true, false, 4, 0);
    WAIT_FOR(link_after(link, &next) == LINK_WAIT);
    watch_says(false, false, 5, 0);
    WAIT_FOR(link_after(link, &next) == LINK_DISMISSED);
    assert_int_equal(over_calls, 1);
    link_close(link);
    fake_coordinator_close();
}

static void a_refused_watch_is_a_dismissal(void **state)
{
    struct link *link = worker_link_open();
    struct link_member next;
    struct err e = {0};

    (void)state;
    heard = 0;
    fake.refused_watch = 4;
    fake_coordinator_open();
    link_set_stays(link, true, count_word);
    assert_int_equal(link_watch(link, count_over, NULL, &e), ERR_OK);
    WAIT_FOR(link_after(link, &next) == LINK_DISMISSED);
    WAIT_FOR(heard > 0 && link_over(link));
    link_close(link);
    fake_coordinator_close();
}

static void a_coordinator_that_does_not_answer_when_asked_counts_as_away(void **state)
{
    struct link *link = stay_in_generation_four();

    (void)state;
    link_ask(link);
    WAIT_FOR(fake.watches > 1 && !link_away(link));
    fake.mute_watches = true;
    link_ask(link);
    WAIT_FOR(link_away(link));
    fake_coordinator_send_watch();
    WAIT_FOR(!link_away(link));
    assert_false(link_over(link));
    link_close(link);
    fake_coordinator_close();
}

/* Join brings the job file of the next generation. One that Watch had brought before would undo it. */
static void a_job_file_that_waits_is_forgotten_with_its_generation(void **state)
{
    const struct link_member next = {.generation = 5};
    struct link *link = stay_in_generation_four();
    struct link_group g;
    struct err e = {0};

    (void)state;
    fake.revision = 3;
    fake_coordinator_send_watch();
    WAIT_FOR(link_tune_asked(link));
    fake.generation = fake.watch_generation = 5;
    fake.revision = 4;
    assert_int_equal(link_join(link, &next, &plain_join, &g, &e), ERR_OK);
    assert_int_equal(g.revision, 4);
    link_tuned(link, g.revision, 0);
    assert_false(link_tune_asked(link));
    link_group_release(&g);
    link_close(link);
    fake_coordinator_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(join_says_that_the_process_stays_and_which_state_it_has,
                               fake_coordinator_reset),
        cmocka_unit_test_setup(watch_tells_a_coordinator_at_once_when_a_process_stays_no_more,
                               fake_coordinator_reset),
        cmocka_unit_test_setup(a_process_that_stays_is_told_to_wait_and_then_what_to_join,
                               fake_coordinator_reset),
        cmocka_unit_test_setup(a_later_generation_that_failed_in_turn_is_followed_by_another_word,
                               fake_coordinator_reset),
        cmocka_unit_test_setup(a_process_that_is_not_wanted_is_dismissed, fake_coordinator_reset),
        cmocka_unit_test_setup(a_refused_watch_is_a_dismissal, fake_coordinator_reset),
        cmocka_unit_test_setup(a_coordinator_that_does_not_answer_when_asked_counts_as_away,
                               fake_coordinator_reset),
        cmocka_unit_test_setup(a_job_file_that_waits_is_forgotten_with_its_generation,
                               fake_coordinator_reset),
    };

    return cmocka_run_group_tests(tests, fake_coordinator_make_directory, fake_coordinator_remove_directory);
}
