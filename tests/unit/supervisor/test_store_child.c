#include "tests/unit/base/check.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/supervisor/spawn.h"
#include "daemon/supervisor/store_child.h"

#define WORKERS 2

/* A process in place of ddp-store, and two workers of its generation, which run. */
struct stage {
    struct store_children stores;
    struct spawn *workers[WORKERS];
    pid_t pid;
    int forgotten; /* the first ones, whose exit the coordinator has recorded */
};

static int stage_open(void **state)
{
    struct stage *s = xcalloc(1, sizeof(*s));
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    s->pid = fork();
    if (!s->pid) {
        close(fds[1]);
        for (;;)
            pause();
    }
    close(fds[0]);
    struct store_child child = {.pid = s->pid, .generation = 3, .owner_fd = fds[1]};
    store_children_take(&s->stores, &child);
    for (int i = 0; i < WORKERS; i++) {
        s->workers[i] = xcalloc(1, sizeof(*s->workers[i]));
        s->workers[i]->fact = (struct spawn_fact){.state = SPAWN_RUNNING, .first_generation = 3};
    }
    *state = s;
    return 0;
}

static int stage_close(void **state)
{
    struct stage *s = *state;

    store_children_release(&s->stores);
    if (s->pid)
        (void)waitpid(s->pid, NULL, 0);
    for (int i = 0; i < WORKERS; i++)
        free(s->workers[i]);
    free(s);
    return 0;
}

static void stage_end(struct stage *s, int worker, int code, int signal)
{
    s->workers[worker]->fact.state = SPAWN_EXITED;
    s->workers[worker]->fact.code = code;
    s->workers[worker]->fact.signal = signal;
}

static void stage_stop(struct stage *s)
{
    for (int i = 0; i < WORKERS; i++)
        s->workers[i]->stop = STOP_TERM;
}

/* Whether the workers still have their store. */
static bool stage_serves(struct stage *s)
{
    store_children_tick(&s->stores, s->workers + s->forgotten, (size_t)(WORKERS - s->forgotten));
    return s->stores.items[0].owner_fd >= 0;
}

static void check_killed(struct stage *s)
{
    int status = 0;

    assert_false(stage_serves(s));
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    store_children_reaped(&s->stores, s->pid, status, 1);
    s->pid = 0;
}

static void the_store_outlives_a_worker_that_ends_by_itself(void **state)
{
    struct stage *s = *state;

    assert_true(stage_serves(s));
    stage_end(s, 0, 0, 0);
    assert_true(stage_serves(s));
    stage_end(s, 0, 1, 0); /* other workers find out by themselves, or by a stop */
    assert_true(stage_serves(s));
}

/* Ranks that are told to stop may write a checkpoint together. The first one that is done sets its last keys and leaves. */
static void a_stopped_worker_that_has_succeeded_leaves_the_store_to_the_others(void **state)
{
    struct stage *s = *state;

    stage_stop(s);
    stage_end(s, 0, 0, 0);
    assert_true(stage_serves(s));
    stage_end(s, 1, 0, 0);
    check_killed(s);
}

static void a_stop_after_a_worker_has_succeeded_leaves_the_store_to_the_others(void **state)
{
    struct stage *s = *state;

    stage_end(s, 0, 0, 0);
    s->workers[1]->stop = STOP_SNAPSHOT;
    assert_true(stage_serves(s));
}

static void a_stopped_worker_that_was_killed_ends_the_store(void **state)
{
    struct stage *s = *state;

    stage_stop(s);
    stage_end(s, 1, 0, SIGINT);
    check_killed(s);
}

static void a_stop_after_a_worker_has_failed_ends_the_store(void **state)
{
    struct stage *s = *state;

    stage_end(s, 0, 1, 0);
    assert_true(stage_serves(s));
    s->forgotten = 1;
    s->workers[1]->stop = STOP_TERM;
    check_killed(s);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, stage_open, stage_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_store_outlives_a_worker_that_ends_by_itself),
        TEST(a_stopped_worker_that_has_succeeded_leaves_the_store_to_the_others),
        TEST(a_stop_after_a_worker_has_succeeded_leaves_the_store_to_the_others),
        TEST(a_stopped_worker_that_was_killed_ends_the_store),
        TEST(a_stop_after_a_worker_has_failed_ends_the_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
