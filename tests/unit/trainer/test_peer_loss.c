/* Tests how long a process that has lost a peer waits for the coordinator's word, against a fake coordinator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "tests/unit/trainer/member/link/fake_coordinator.h"
#include "trainer/member/link/join.h"
#include "trainer/member/link/watch.h"
#include "trainer/peer_loss.h"

/* The fake coordinator answers within this time also on a machine where much else runs. */
enum { LIMIT_MS = 1000 };

/* A member of generation 4 that stays, and the thread that waits. */
struct survivor {
    struct trainer trainer;
    struct link *link;
    struct link_member as;
    pthread_t thread;
    bool goes_on;
    _Atomic bool ended;
};

static void generation_over(void *arg, int64_t generation)
{
    (void)arg, (void)generation;
}

static void survivor_open(struct survivor *s)
{
    const struct link_join join = {.address = (const uint8_t *)"here", .address_size = 4};
    struct link_group g;
    struct err e = {0};

    *s = (struct survivor){.link = worker_link_open()};
    s->trainer.link = s->trainer.formation.link = s->link;
    fake_coordinator_open();
    link_set_stays(s->link, true, peer_loss_wake);
    s->as = *link_first_member(s->link);
    assert_int_equal(link_join(s->link, &s->as, &join, &g, &e), ERR_OK);
    link_group_release(&g);
    assert_int_equal(link_watch(s->link, generation_over, NULL, &e), ERR_OK);
    WAIT_FOR(fake.watches > 0);
}

static void *survivor_main(void *arg)
{
    struct survivor *s = arg;

    s->goes_on = peer_loss_await(&s->trainer, LIMIT_MS, &s->as);
    atomic_store(&s->ended, true);
    return NULL;
}

static void survivor_wait(struct survivor *s)
{
    assert_int_equal(pthread_create(&s->thread, NULL, survivor_main, s), 0);
}

static void survivor_close(struct survivor *s)
{
    pthread_join(s->thread, NULL);
    link_close(s->link);
    fake_coordinator_close();
}

static void a_survivor_waits_while_the_coordinator_is_away(void **state)
{
    struct survivor s;

    (void)state;
    survivor_open(&s);
    fake_coordinator_close();
    WAIT_FOR(link_away(s.link));
    const int64_t began = clock_boot_ms();
    survivor_wait(&s);
    WAIT_FOR(clock_boot_ms() > began + 2 * LIMIT_MS);
    assert_false(s.ended);
    fake.watch_next = true;
    fake.watch_generation = 6;
    fake_coordinator_open();
    WAIT_FOR(s.ended);
    assert_true(s.goes_on);
    assert_int_equal(s.as.generation, 6);
    survivor_close(&s);
}

static void a_survivor_ends_if_the_coordinator_is_there_and_silent(void **state)
{
    struct survivor s;

    (void)state;
    survivor_open(&s);
    assert_false(fake.watched_broken);
    survivor_wait(&s);
    WAIT_FOR(s.ended);
    assert_false(s.goes_on);
    assert_true(fake.watched_broken);
    survivor_close(&s);
}

/* The coordinator says each time that others have yet to notice, and then no more. */
static void a_survivor_waits_for_peers_that_have_not_noticed(void **state)
{
    struct survivor s;

    (void)state;
    fake.watch_member_waits = true;
    survivor_open(&s);
    const int64_t began = clock_boot_ms();
    survivor_wait(&s);
    WAIT_FOR(fake.watched_broken && clock_boot_ms() > began + 2 * LIMIT_MS);
    assert_false(s.ended);
    fake.watch_member_waits = false;
    WAIT_FOR(s.ended);
    assert_false(s.goes_on);
    survivor_close(&s);
}

static int64_t now_ms(void)
{
    return clock_mono_ns() / 1000000;
}

static void a_sleep_ends_at_its_deadline(void **state)
{
    const int64_t end = now_ms() + LIMIT_MS;

    (void)state;
    while (peer_loss_sleep(end))
        assert_true(now_ms() < end + 20000);
    assert_true(now_ms() >= end);
    assert_false(peer_loss_sleep(end));
}

static void a_sleep_ends_when_something_may_have_changed(void **state)
{
    (void)state;
    peer_loss_wake();
    assert_true(peer_loss_sleep(now_ms() + 60000));
    peer_loss_wake();
    assert_true(peer_loss_sleep(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_survivor_waits_while_the_coordinator_is_away, fake_coordinator_reset),
        cmocka_unit_test_setup(a_survivor_ends_if_the_coordinator_is_there_and_silent,
                               fake_coordinator_reset),
        cmocka_unit_test_setup(a_survivor_waits_for_peers_that_have_not_noticed, fake_coordinator_reset),
        cmocka_unit_test(a_sleep_ends_at_its_deadline),
        cmocka_unit_test(a_sleep_ends_when_something_may_have_changed),
    };

    return cmocka_run_group_tests(tests, fake_coordinator_make_directory, fake_coordinator_remove_directory);
}
