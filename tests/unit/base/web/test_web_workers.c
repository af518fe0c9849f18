/* Threads that answer requests: neither one owner nor slow tasks take all of them, or all places in the queue. */
#include "tests/unit/base/check.h"

#include <pthread.h>
#include <time.h>

#include "base/mem.h"
#include "base/web/web_workers.h"

#define WAIT_S 20
#define TASKS 64

static const struct web_workers_limits limits = {
    .threads = 6, .slow = 4, .waiting = 24, .owner_threads = 3, .owner_slow = 2, .owner_waiting = 10};
static const char ana[] = "ana", ben[] = "ben", cem[] = "cem";

struct held_task {        /* runs until the fixture lets it go */
    struct web_task task; /* first */
    struct fixture *fixture;
    bool runs, done;
};
struct fixture {
    struct web_workers *workers;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool let_go;
    struct held_task tasks[TASKS];
    size_t count;
};

static void held_run(struct web_task *task)
{
    struct held_task *t = (struct held_task *)task;
    pthread_mutex_lock(&t->fixture->lock);
    t->runs = true;
    pthread_cond_broadcast(&t->fixture->changed);
    while (!t->fixture->let_go)
        pthread_cond_wait(&t->fixture->changed, &t->fixture->lock);
    t->runs = false;
    t->done = true;
    pthread_mutex_unlock(&t->fixture->lock);
}

static void fixture_open(struct fixture *f)
{
    *f = (struct fixture){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    f->workers = web_workers_create(&limits);
}

/* Whether the task was taken. */
static bool fixture_add(struct fixture *f, const char *owner, bool slow)
{
    struct held_task *t = &f->tasks[f->count++];
    *t = (struct held_task){.task = {.run = held_run, .owner = owner, .slow = slow}, .fixture = f};
    return web_workers_add(f->workers, &t->task);
}

static size_t tasks_running(const struct fixture *f, const char *owner)
{
    size_t count = 0;
    for (size_t i = 0; i < f->count; i++)
        count += f->tasks[i].runs && f->tasks[i].task.owner == owner;
    return count;
}

static void wait_running(struct fixture *f, const char *owner, size_t wanted)
{
    struct timespec until;
    int rc = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S * test_slow();
    pthread_mutex_lock(&f->lock);
    while (tasks_running(f, owner) < wanted && !rc)
        rc = pthread_cond_timedwait(&f->changed, &f->lock, &until);
    const size_t count = tasks_running(f, owner);
    pthread_mutex_unlock(&f->lock);
    assert_int_equal(count, wanted);
}

/* Lets all tasks go, and expects that each that was taken has run. */
static void fixture_close(struct fixture *f, size_t refused)
{
    size_t done = 0;
    pthread_mutex_lock(&f->lock);
    f->let_go = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    web_workers_end(f->workers);
    for (size_t i = 0; i < f->count; i++)
        done += f->tasks[i].done;
    assert_int_equal(done, f->count - refused);
    web_workers_free(f->workers);
}

static void slow_tasks_of_one_owner_leave_threads_to_others(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f);
    for (int i = 0; i < 6; i++)
        assert_true(fixture_add(&f, ana, true));
    wait_running(&f, ana, 2);
    assert_true(fixture_add(&f, ben, false));
    wait_running(&f, ben, 1);
    assert_true(fixture_add(&f, ana, false)); /* what is quick does not wait for the owner's slow tasks */
    wait_running(&f, ana, 3);
    fixture_close(&f, 0);
}

static void slow_tasks_of_all_leave_threads_to_quick_ones(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f);
    for (int i = 0; i < 3; i++) {
        assert_true(fixture_add(&f, ana, true));
        assert_true(fixture_add(&f, ben, true));
        assert_true(fixture_add(&f, NULL, true));
    }
    assert_true(fixture_add(&f, cem, false));
    assert_true(fixture_add(&f, cem, false));
    wait_running(&f, cem, 2);
    fixture_close(&f, 0);
}

static void quick_tasks_of_one_owner_leave_threads_to_others(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f);
    for (int i = 0; i < 9; i++)
        assert_true(fixture_add(&f, ana, false));
    wait_running(&f, ana, 3);
    for (int i = 0; i < 3; i++)
        assert_true(fixture_add(&f, ben, false));
    wait_running(&f, ben, 3);
    fixture_close(&f, 0);
}

static void one_owner_leaves_places_in_the_queue(void **state)
{
    struct fixture f;
    size_t refused = 0;
    (void)state;
    fixture_open(&f);
    for (int i = 0; i < 3; i++)
        assert_true(fixture_add(&f, ana, false));
    wait_running(&f, ana, 3);
    for (int i = 0; i < 10; i++)
        assert_true(fixture_add(&f, ana, false));
    refused += !fixture_add(&f, ana, false);
    assert_int_equal(refused, 1);
    for (int i = 0; i < 3; i++)
        assert_true(fixture_add(&f, ben, false));
    wait_running(&f, ben, 3);
    for (int i = 0; i < 14; i++) /* 24 wait in all */
        refused += !fixture_add(&f, i % 2 ? ben : cem, false);
    assert_int_equal(refused, 1);
    refused += !fixture_add(&f, NULL, false);
    assert_int_equal(refused, 2);
    fixture_close(&f, refused);
}

static void tasks_without_an_owner_take_all_threads(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f);
    for (int i = 0; i < 6; i++)
        assert_true(fixture_add(&f, NULL, false));
    wait_running(&f, NULL, 6);
    fixture_close(&f, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_tasks_of_one_owner_leave_threads_to_others),
        cmocka_unit_test(slow_tasks_of_all_leave_threads_to_quick_ones),
        cmocka_unit_test(quick_tasks_of_one_owner_leave_threads_to_others),
        cmocka_unit_test(one_owner_leaves_places_in_the_queue),
        cmocka_unit_test(tasks_without_an_owner_take_all_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
