#include "tests/unit/base/check.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/logs/log_expiry_timer.h"

static atomic_int removals;
static atomic_bool removals_wait;
static sem_t began, go_on, pass_done;
enum err_code __real_file_remove_tree(const char *dir, struct err *e);
enum err_code __wrap_file_remove_tree(const char *dir, struct err *e);

enum err_code __wrap_file_remove_tree(const char *dir, struct err *e)
{
    if (atomic_load(&removals_wait)) {
        sem_post(&began);
        sem_wait(&go_on);
    }
    if (!atomic_fetch_add(&removals, 1))
        return err_set(e, ERR_PERMISSION_DENIED, "remove %s: not yet", dir);
    return __real_file_remove_tree(dir, e);
}

static int64_t *no_jobs(void *ctx, size_t *count)
{
    (void)ctx;
    *count = 0;
    return NULL;
}

/* The first removal fails; the next pass, here that of another deleted job, removes the directory. */
static void deleted_logs_that_stay_are_tried_again(void **state)
{
    char dir[] = "/tmp/ddp-test-deleted-XXXXXX";
    struct log_expiry_options options = {.log_dir = dir, .node = "box1", .live = no_jobs};
    struct log_expiry_timer *timer;
    struct err e;
    uv_loop_t loop;

    (void)state;
    assert_non_null(mkdtemp(dir));
    CLEANUP(free_text) char *logs = xasprintf("%s/11", dir);
    CLEANUP(free_text) char *generation = xasprintf("%s/generation_1/box1", logs);
    assert_ok(file_mkdirs(generation, 0755, &e), &e);
    assert_int_equal(uv_loop_init(&loop), 0);
    timer = log_expiry_timer_create(&loop, &options);
    alarm(30u * (unsigned)test_slow()); /* the next pass of itself is an hour away */
    log_expiry_timer_delete(timer, 11);
    while (!atomic_load(&removals))
        uv_run(&loop, UV_RUN_ONCE);
    assert_true(file_exists(generation));
    log_expiry_timer_delete(timer, 12);
    while (file_exists(logs))
        uv_run(&loop, UV_RUN_ONCE);
    alarm(0);
    assert_int_equal(atomic_load(&removals), 2);
    log_expiry_timer_free(timer);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(rmdir(dir), 0);
}

static int64_t live_job;

static int64_t *one_job(void *ctx, size_t *count)
{
    int64_t *jobs = xcalloc(1, sizeof(*jobs));

    (void)ctx;
    *count = live_job != 0;
    *jobs = live_job;
    return jobs;
}

static void timer_end(uv_loop_t *loop, struct log_expiry_timer *timer)
{
    log_expiry_timer_free(timer);
    uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0);
}

/* The agent ends while a process of the deleted job is still there. */
static void deletion_goes_on_after_a_restart(void **state)
{
    char dir[] = "/tmp/ddp-test-deleted-XXXXXX";
    struct log_expiry_timer *timer;
    struct err e;
    uv_loop_t loop;

    (void)state;
    assert_non_null(mkdtemp(dir));
    CLEANUP(free_text) char *list = xasprintf("%s/list", dir);
    CLEANUP(free_text) char *logs = xasprintf("%s/logs", dir);
    CLEANUP(free_text) char *generation = xasprintf("%s/12/generation_1/box1", logs);
    CLEANUP(free_text) char *job = xasprintf("%s/12", logs);
    struct log_expiry_options options = {.log_dir = logs, .node = "box1", .list = list, .live = one_job};
    assert_ok(file_mkdirs(generation, 0755, &e), &e);
    atomic_store(&removals, 1); /* none fails */
    live_job = 12;
    assert_int_equal(uv_loop_init(&loop), 0);
    timer = log_expiry_timer_create(&loop, &options);
    log_expiry_timer_delete(timer, 12);
    assert_true(file_exists(list));
    timer_end(&loop, timer);
    assert_true(file_exists(generation));
    live_job = 0;
    assert_int_equal(uv_loop_init(&loop), 0);
    timer = log_expiry_timer_create(&loop, &options);
    alarm(30u * (unsigned)test_slow());
    while (file_exists(job) || file_exists(list))
        uv_run(&loop, UV_RUN_ONCE);
    alarm(0);
    timer_end(&loop, timer);
    assert_ok(file_remove_tree(dir, &e), &e);
}

static int list_writes;
enum err_code __real_file_write_atomic(const char *path, const void *data, size_t size, unsigned mode,
                                       struct err *e);
enum err_code __wrap_file_write_atomic(const char *path, const void *data, size_t size, unsigned mode,
                                       struct err *e);

enum err_code __wrap_file_write_atomic(const char *path, const void *data, size_t size, unsigned mode,
                                       struct err *e)
{
    list_writes++;
    return __real_file_write_atomic(path, data, size, mode, e);
}

/* Each write waits for the disk, in the agent's loop. None is lost when the agent ends. */
static void many_deletions_are_noted_together(void **state)
{
    char dir[] = "/tmp/ddp-test-deleted-XXXXXX";
    CLEANUP(buf_release) struct buf text = {0};
    struct err e;
    uv_loop_t loop;

    (void)state;
    assert_non_null(mkdtemp(dir));
    CLEANUP(free_text) char *list = xasprintf("%s/list", dir);
    struct log_expiry_options options = {.log_dir = dir, .node = "box1", .list = list, .live = one_job};
    assert_int_equal(uv_loop_init(&loop), 0);
    struct log_expiry_timer *timer = log_expiry_timer_create(&loop, &options);
    list_writes = 0;
    for (int64_t job = 100; job < 1100; job++)
        log_expiry_timer_delete(timer, job);
    timer_end(&loop, timer);
    assert_in_range(list_writes, 1, 100);
    assert_ok(file_read(list, 1 << 20, &text, &e), &e);
    assert_non_null(strstr(text.data, "\n1099\n"));
    assert_ok(file_remove_tree(dir, &e), &e);
}

static void on_pass_done(uv_work_t *work)
{
    (void)work;
    sem_post(&pass_done);
}

static void on_nothing(uv_work_t *work, int status)
{
    (void)work, (void)status;
}

/* The agent ends, and the end of a pass, after which a deleted job still has a process, is the next thing that its loop sees. */
static void a_timer_that_closes_is_not_started(void **state)
{
    char dir[] = "/tmp/ddp-test-deleted-XXXXXX";
    struct log_expiry_options options = {.log_dir = dir, .node = "box1", .live = one_job};
    uv_work_t mark;
    struct err e;
    uv_loop_t loop;

    (void)state;
    assert_non_null(mkdtemp(dir));
    CLEANUP(free_text) char *generation = xasprintf("%s/13/generation_1/box1", dir);
    assert_ok(file_mkdirs(generation, 0755, &e), &e);
    sem_init(&began, 0, 0), sem_init(&go_on, 0, 0), sem_init(&pass_done, 0, 0);
    atomic_store(&removals, 1); /* none fails */
    atomic_store(&removals_wait, true);
    live_job = 12;
    assert_int_equal(uv_loop_init(&loop), 0);
    struct log_expiry_timer *timer = log_expiry_timer_create(&loop, &options);
    log_expiry_timer_delete(timer, 12);
    log_expiry_timer_delete(timer, 13);
    alarm(30u * (unsigned)test_slow());
    uv_run(&loop, UV_RUN_NOWAIT); /* begins the pass */
    sem_wait(&began);
    assert_int_equal(uv_queue_work(&loop, &mark, on_pass_done, on_nothing), 0); /* there is one pool thread */
    atomic_store(&removals_wait, false);
    sem_post(&go_on);
    sem_wait(&pass_done);
    timer_end(&loop, timer);
    alarm(0);
    assert_ok(file_remove_tree(dir, &e), &e);
}

int main(void)
{
    setenv("UV_THREADPOOL_SIZE", "1", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(deleted_logs_that_stay_are_tried_again),
                                       cmocka_unit_test(deletion_goes_on_after_a_restart),
                                       cmocka_unit_test(many_deletions_are_noted_together),
                                       cmocka_unit_test(a_timer_that_closes_is_not_started)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
