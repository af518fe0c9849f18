#include "tests/unit/base/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/supervisors.h"
#include "daemon/supervisor/protocol/socket.h"

/* The test plays the supervisor of job 7: it listens where a supervisor would. */

static const char *programs_dir; /* where the agent finds ddp-supervisor; NULL: beside the test */

/* Replaces the C library's, by which paths_program finds the directory of the running program. */
ssize_t readlink(const char *path, char *out, size_t size)
{
    if (!programs_dir || strcmp(path, "/proc/self/exe") != 0)
        return readlinkat(AT_FDCWD, path, out, size);
    return snprintf(out, size, "%s/test", programs_dir);
}

struct fixture {
    char dir[64];
    char *supervisor_dir;
    uv_loop_t loop;
    struct supervisors_options options;
    struct supervisors *supervisors;
    int listener, changes;
};

static void on_change(void *user)
{
    ((struct fixture *)user)->changes++;
}

static void on_report(void *user, int64_t job, const struct metric_report *report)
{
    (void)user;
    (void)job;
    (void)report;
}

static void fixture_open(struct fixture *f)
{
    struct supervisor_events events = {on_change, on_report, f};
    struct err e;

    memset(f, 0, sizeof(*f));
    strcpy(f->dir, "/tmp/ddp-test-supervisors-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->supervisor_dir = xasprintf("%s/run/7", f->dir);
    assert_ok(file_mkdirs(f->supervisor_dir, 0700, &e), &e);
    assert_ok(control_listen(f->supervisor_dir, &f->listener, &e), &e);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->options = (struct supervisors_options){.state = f->dir, .log_dir = f->dir, .node = "box1"};
    assert_ok(supervisors_open(&f->supervisors, &f->loop, &f->options, &events, &e), &e);
}

static void fixture_close(struct fixture *f)
{
    struct err e;

    supervisors_close(f->supervisors);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    close(f->listener);
    assert_ok(file_remove_tree(f->dir, &e), &e);
    free(f->supervisor_dir);
}

static enum err_code order_spawn_of(struct fixture *f, int64_t job, int64_t spawn, struct err *e)
{
    CLEANUP(spawn_order_release) struct spawn_order o = {.spawn = spawn, .first_generation = 1};

    o.id = xstrdup("7.b.3");
    o.owner = xstrdup("o");
    o.log_dir = xstrdup(f->dir);
    o.argv = xcalloc(2, sizeof(*o.argv));
    o.argv[0] = xstrdup("true");
    o.env = xcalloc(1, sizeof(*o.env));
    return supervisors_start(f->supervisors, job, &o, e);
}

static enum err_code order_spawn(struct fixture *f, int64_t spawn, struct err *e)
{
    return order_spawn_of(f, 7, spawn, e);
}

/* Lets the agent connect, and returns the supervisor's end of the connection. */
static int meet_supervisor(struct fixture *f, int64_t now)
{
    struct err e;
    int fd;

    supervisors_tend(f->supervisors, now);
    assert_ok(control_accept(f->listener, &fd, &e), &e);
    return fd;
}

static size_t known_count(struct fixture *f)
{
    size_t count;

    free(supervisors_known(f->supervisors, &count));
    return count;
}

static void an_order_to_an_ending_supervisor_waits_for_the_next_one(void **state)
{
    struct fixture f;
    struct control_message m;
    struct err e;
    int fd;

    (void)state;
    fixture_open(&f);
    assert_int_equal(order_spawn(&f, 3, &e), ERR_UNAVAILABLE); /* not connected yet */
    fd = meet_supervisor(&f, 1);
    close(fd); /* as a supervisor does when its last record has been deleted */
    assert_int_equal(order_spawn(&f, 3, &e), ERR_UNAVAILABLE);
    assert_int_equal(known_count(&f), 0);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    assert_int_equal(f.changes, 1);
    assert_true(supervisors_settled(f.supervisors, 7));

    assert_int_equal(order_spawn(&f, 3, &e), ERR_UNAVAILABLE);
    fd = meet_supervisor(&f, INT64_MAX / 2);
    assert_ok(order_spawn(&f, 3, &e), &e);
    assert_ok(control_receive(fd, &m, &e), &e);
    assert_int_equal(m.op, CONTROL_START);
    assert_int_equal(m.order.spawn, 3);
    control_message_release(&m);
    assert_int_equal(known_count(&f), 1);
    close(fd);
    fixture_close(&f);
}

/* Job 8 has no supervisor, and its log cannot be opened. */
static void a_supervisor_that_cannot_be_started_refuses_the_orders(void **state)
{
    const struct spawn_order refused = {.spawn = 3, .first_generation = 1};
    struct supervisor_events events = {on_change, on_report, NULL};
    struct fixture f;
    struct err e;
    size_t count;

    (void)state;
    fixture_open(&f);
    supervisors_close(f.supervisors);
    events.user = &f;
    CLEANUP(free_text) char *file = xasprintf("%s/file", f.dir);
    CLEANUP(free_text) char *below = xasprintf("%s/logs", file);
    f.options.log_dir = below;
    assert_ok(file_write_atomic(file, "", 0, 0600, &e), &e);
    assert_ok(supervisors_open(&f.supervisors, &f.loop, &f.options, &events, &e), &e);

    assert_int_equal(order_spawn_of(&f, 8, 3, &e), ERR_UNAVAILABLE); /* nobody has tried yet */
    supervisors_tend(f.supervisors, 1);
    assert_int_equal(order_spawn_of(&f, 8, 3, &e), ERR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(e.msg, "its supervisor cannot be started: "));
    supervisors_refuse(f.supervisors, 8, &refused, e.msg, true, false);
    const struct spawn_fact **known = supervisors_known(f.supervisors, &count);
    assert_int_equal(count, 1);
    assert_true(known[0]->not_started && known[0]->node_trouble);
    free(known);
    /* further orders are refused, too, and the record can be removed without a supervisor */
    assert_true(supervisors_settled(f.supervisors, 8));
    assert_int_equal(order_spawn_of(&f, 8, 4, &e), ERR_RESOURCE_EXHAUSTED);
    supervisors_forget(f.supervisors, 8, 3);
    assert_int_equal(known_count(&f), 0);
    /* a later order begins with a new try */
    supervisors_tend(f.supervisors, 2);
    supervisors_tend(f.supervisors, 3);
    assert_int_equal(order_spawn_of(&f, 8, 5, &e), ERR_UNAVAILABLE);
    fixture_close(&f);
}

/* Lets the launched supervisor of job 8 end, and the agent notice it. */
static void await_end(struct fixture *f)
{
    const int before = f->changes;

    while (f->changes == before)
        uv_run(&f->loop, UV_RUN_ONCE);
}

static void a_supervisor_that_ends_at_once_refuses_the_orders(void **state)
{
    const struct spawn_order refused = {.spawn = 3, .first_generation = 1};
    struct fixture f;
    struct err e;
    int64_t now;

    (void)state;
    fixture_open(&f);
    now = clock_boot_ms();
    CLEANUP(free_text) char *script = xasprintf("%s/ddp-supervisor", f.dir);
    assert_ok(file_write_atomic(script, "#!/bin/sh\nexit 127\n", 19, 0700, &e), &e);
    programs_dir = f.dir;
    for (size_t i = 1; i <= 3; i++) {
        assert_int_equal(order_spawn_of(&f, 8, 3, &e), ERR_UNAVAILABLE);
        supervisors_tend(f.supervisors, now);
        assert_int_equal(supervisors_children(f.supervisors), i);
        await_end(&f);
        /* the next one is not started at once */
        assert_int_equal(order_spawn_of(&f, 8, 3, &e), ERR_UNAVAILABLE);
        assert_int_equal(supervisors_tend(f.supervisors, now + 100), now + 200);
        assert_int_equal(supervisors_children(f.supervisors), i);
        now += 200;
    }
    /* refused while it is tried again and again */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(order_spawn_of(&f, 8, 3, &e), ERR_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(e.msg, "/8/supervisor.box1.log"));
        supervisors_refuse(f.supervisors, 8, &refused, e.msg, true, false);
        supervisors_tend(f.supervisors, now);
        await_end(&f);
        now += 200;
        assert_true(supervisors_settled(f.supervisors, 8));
        supervisors_forget(f.supervisors, 8, 3);
        assert_int_equal(known_count(&f), 0);
    }
    /* when no order waits any more, the next one begins anew */
    supervisors_tend(f.supervisors, now);
    supervisors_tend(f.supervisors, now);
    assert_int_equal(order_spawn_of(&f, 8, 4, &e), ERR_UNAVAILABLE);
    programs_dir = NULL;
    fixture_close(&f);
}

static size_t run_directories(const struct fixture *f)
{
    CLEANUP(free_text) char *path = xasprintf("%s/run", f->dir);
    const struct dirent *entry;
    size_t count = 0;
    DIR *d = opendir(path);

    assert_non_null(d);
    while ((entry = readdir(d)))
        count += entry->d_name[0] != '.';
    closedir(d);
    return count;
}

/* Says that the job is not wanted, after a time that is longer than the limit of a sweep. */
static bool wanted_late(void *ctx, int64_t job)
{
    const struct fixture *f = ctx;
    const int64_t end = clock_boot_ms() + 2 * f->options.sweep_ms;

    (void)job;
    while (clock_boot_ms() < end)
        continue;
    return false;
}

static void a_sweep_has_one_time_limit_for_all_jobs(void **state)
{
    struct supervisor_events events = {on_change, on_report, NULL};
    struct fixture f;
    struct err e;

    (void)state;
    fixture_open(&f);
    supervisors_close(f.supervisors);
    f.options.sweep_ms = 5;
    for (int job = 8; job < 11; job++) {
        CLEANUP(free_text) char *dir = xasprintf("%s/run/%d", f.dir, job);
        assert_ok(file_mkdirs(dir, 0700, &e), &e);
    }
    assert_ok(file_remove_tree(f.supervisor_dir, &e), &e); /* its socket would take time to remove */
    assert_ok(supervisors_open(&f.supervisors, &f.loop, &f.options, &events, &e), &e);
    for (size_t left = 3; left > 0; left--) {
        assert_int_equal(run_directories(&f), left);
        assert_true(supervisors_sweep(f.supervisors, wanted_late, &f) != INT64_MAX || left == 1);
    }
    assert_int_equal(run_directories(&f), 0);
    assert_true(supervisors_sweep(f.supervisors, wanted_late, &f) == INT64_MAX);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_order_to_an_ending_supervisor_waits_for_the_next_one),
        cmocka_unit_test(a_supervisor_that_cannot_be_started_refuses_the_orders),
        cmocka_unit_test(a_supervisor_that_ends_at_once_refuses_the_orders),
        cmocka_unit_test(a_sweep_has_one_time_limit_for_all_jobs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
