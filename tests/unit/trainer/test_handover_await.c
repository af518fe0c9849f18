/* Tests how long a rank waits for a hand-over, against a fake coordinator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>

#include "tests/unit/trainer/member/link/fake_coordinator.h"
#include "trainer/handover.h"
#include "trainer/member/link/watch.h"
#include "trainer/peer_loss.h"
#include "trainer/signals.h"

enum { HEAR_MS = 1000 }; /* the limit of a rank that has heard no number */

/* A member of generation 4, and the thread that waits. */
struct waiter {
    struct trainer trainer;
    pthread_t thread;
    enum err_code code;
    _Atomic bool ended;
};

static void generation_over(void *arg, int64_t generation)
{
    (void)arg, (void)generation;
}

/* last: the number for which it has waited before. */
static void waiter_open(struct waiter *w, int64_t last)
{
    struct err e = {0};

    *w = (struct waiter){.trainer = {.handover = last, .link = worker_link_open()}};
    fake_coordinator_open();
    link_set_stays(w->trainer.link, true, peer_loss_wake);
    assert_int_equal(link_watch(w->trainer.link, generation_over, NULL, &e), ERR_OK);
    WAIT_FOR(fake.watches > 0);
}

static void waiter_hears(const struct waiter *w, int number)
{
    fake.watch_handover = number;
    fake_coordinator_send_watch();
    WAIT_FOR(link_handover(w->trainer.link) == number);
}

static void *waiter_main(void *arg)
{
    struct waiter *w = arg;
    struct err e = {0};

    w->code = handover_await(&w->trainer, &e);
    atomic_store(&w->ended, true);
    return NULL;
}

static void waiter_wait(struct waiter *w)
{
    assert_int_equal(pthread_create(&w->thread, NULL, waiter_main, w), 0);
}

static void waiter_close(struct waiter *w)
{
    pthread_join(w->thread, NULL);
    link_close(w->trainer.link);
    fake_coordinator_close();
    trainer_stop_signal = 0;
}

/* The wait ends without an error, and the rank goes on training in the same generation. */
static void waiter_goes_on(struct waiter *w, int64_t last)
{
    WAIT_FOR(w->ended);
    assert_int_equal(w->code, ERR_OK);
    assert_false(w->trainer.handed_over);
    assert_int_equal(w->trainer.handover, last);
    WAIT_FOR(fake.watched_ready == 0);
    waiter_close(w);
}

static void a_wait_ends_if_the_number_was_taken_back_before_it(void **state)
{
    struct waiter w;

    (void)state;
    waiter_open(&w, 0);
    waiter_hears(&w, 7);
    assert_true(handover_vote(&w.trainer) > 0);
    waiter_hears(&w, 0);
    waiter_wait(&w);
    waiter_goes_on(&w, 0);
}

/* The coordinator hears at once how far the ranks are, and then that this rank waits. */
static void a_rank_says_how_much_it_has_gathered(void **state)
{
    struct waiter w;

    (void)state;
    waiter_open(&w, 0);
    waiter_hears(&w, 7);
    link_set_gathered(w.trainer.link, 1);
    WAIT_FOR(fake.watched_gathered == 1);
    link_set_gathered(w.trainer.link, 4001);
    WAIT_FOR(fake.watched_gathered == 4001);
    assert_int_equal(fake.watched_ready, 0);
    waiter_wait(&w);
    WAIT_FOR(fake.watched_ready == 7);
    WAIT_FOR(fake.watched_gathered == 0);
    waiter_hears(&w, 0);
    waiter_goes_on(&w, 7);
}

static void a_rank_that_hears_no_number_remembers_the_last_one(void **state)
{
    struct waiter w;

    (void)state;
    waiter_open(&w, 7);
    waiter_wait(&w);
    waiter_goes_on(&w, 7);
}

/* As the handler of ddp-trainer does. */
static void note_signal(int number)
{
    trainer_stop_signal = number;
    peer_loss_wake();
}

static void a_signal_ends_the_wait(void **state)
{
    struct waiter w;

    (void)state;
    assert_true(signal(SIGTERM, note_signal) != SIG_ERR);
    waiter_open(&w, 0);
    waiter_hears(&w, 7);
    waiter_wait(&w);
    WAIT_FOR(fake.watched_ready == 7);
    assert_int_equal(pthread_kill(w.thread, SIGTERM), 0);
    waiter_goes_on(&w, 7);
}

static void a_late_vote_makes_a_rank_ready_for_the_same_number_again(void **state)
{
    struct waiter w;

    (void)state;
    waiter_open(&w, 7);
    waiter_hears(&w, 7);
    assert_true(handover_vote(&w.trainer) == 0);
    waiter_wait(&w);
    WAIT_FOR(fake.watched_ready == 7);
    fake.watch_generation = 5;
    fake_coordinator_send_watch();
    WAIT_FOR(w.ended);
    assert_int_equal(w.code, ERR_ABORTED);
    assert_true(w.trainer.handed_over);
    waiter_close(&w);
}

static void a_rank_that_waits_with_the_last_number_takes_the_next_one(void **state)
{
    struct waiter w;

    (void)state;
    waiter_open(&w, 7);
    waiter_hears(&w, 7);
    waiter_wait(&w);
    WAIT_FOR(fake.watched_ready == 7);
    waiter_hears(&w, 8);
    WAIT_FOR(fake.watched_ready == 8);
    waiter_hears(&w, 0);
    waiter_goes_on(&w, 8);
}

static void a_rank_waits_longer_for_the_number_while_the_coordinator_is_away(void **state)
{
    struct waiter w;

    (void)state;
    waiter_open(&w, 0);
    fake_coordinator_close();
    WAIT_FOR(link_away(w.trainer.link));
    const int64_t began = clock_boot_ms();
    waiter_wait(&w);
    WAIT_FOR(clock_boot_ms() > began + HEAR_MS + HEAR_MS / 2);
    assert_false(w.ended);
    fake.watch_handover = 7;
    fake_coordinator_open();
    WAIT_FOR(fake.watched_ready == 7);
    waiter_hears(&w, 0);
    waiter_goes_on(&w, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_wait_ends_if_the_number_was_taken_back_before_it, fake_coordinator_reset),
        cmocka_unit_test_setup(a_rank_says_how_much_it_has_gathered, fake_coordinator_reset),
        cmocka_unit_test_setup(a_rank_that_hears_no_number_remembers_the_last_one, fake_coordinator_reset),
        cmocka_unit_test_setup(a_signal_ends_the_wait, fake_coordinator_reset),
        cmocka_unit_test_setup(a_late_vote_makes_a_rank_ready_for_the_same_number_again,
                               fake_coordinator_reset),
        cmocka_unit_test_setup(a_rank_that_waits_with_the_last_number_takes_the_next_one,
                               fake_coordinator_reset),
        cmocka_unit_test_setup(a_rank_waits_longer_for_the_number_while_the_coordinator_is_away,
                               fake_coordinator_reset),
    };

    return cmocka_run_group_tests(tests, fake_coordinator_make_directory, fake_coordinator_remove_directory);
}
