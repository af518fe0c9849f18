#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/supervisors.h"
#include "daemon/supervisor/protocol/socket.h"

/* The test is the supervisor of job 7: it listens where the real one would. */

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

static void bench_open(struct fixture *b)
{
    struct supervisor_events events = {on_change, on_report, b};
    struct err e;

    memset(b, 0, sizeof(*b));
    strcpy(b->dir, "/tmp/ddp-test-supervisors-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    b->supervisor_dir = xasprintf("%s/run/7", b->dir);
    assert_ok(file_mkdirs(b->supervisor_dir, 0700, &e), &e);
    assert_ok(control_listen(b->supervisor_dir, &b->listener, &e), &e);
    assert_int_equal(uv_loop_init(&b->loop), 0);
    b->options = (struct supervisors_options){.state = b->dir, .log_dir = b->dir, .node = "box1"};
    assert_ok(supervisors_open(&b->supervisors, &b->loop, &b->options, &events, &e), &e);
}

static void bench_close(struct fixture *b)
{
    struct err e;

    supervisors_close(b->supervisors);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&b->loop), 0);
    close(b->listener);
    assert_ok(file_remove_tree(b->dir, &e), &e);
    free(b->supervisor_dir);
}

static enum err_code order_spawn(struct fixture *b, int64_t spawn, struct err *e)
{
    CLEANUP(spawn_order_release) struct spawn_order o = {.spawn = spawn, .first_generation = 1};

    o.id = xstrdup("7.b.3");
    o.owner = xstrdup("o");
    o.log_dir = xstrdup(b->dir);
    o.argv = xcalloc(2, sizeof(*o.argv));
    o.argv[0] = xstrdup("true");
    o.env = xcalloc(1, sizeof(*o.env));
    return supervisors_start(b->supervisors, 7, &o, e);
}

/* Lets the agent connect, and returns the supervisor's end. */
static int meet_supervisor(struct fixture *b, int64_t now)
{
    struct err e;
    int fd;

    supervisors_tend(b->supervisors, now);
    assert_ok(control_accept(b->listener, &fd, &e), &e);
    return fd;
}

static size_t known_count(struct fixture *b)
{
    size_t count;

    free(supervisors_known(b->supervisors, &count));
    return count;
}

static void an_order_to_an_ending_supervisor_waits_for_the_next_one(void **state)
{
    struct fixture b;
    struct control_message m;
    struct err e;
    int fd;

    (void)state;
    bench_open(&b);
    assert_int_equal(order_spawn(&b, 3, &e), ERR_UNAVAILABLE); /* not connected yet */
    fd = meet_supervisor(&b, 1);
    close(fd); /* as a supervisor does when its last record was forgotten */
    assert_int_equal(order_spawn(&b, 3, &e), ERR_UNAVAILABLE);
    assert_int_equal(known_count(&b), 0);
    uv_run(&b.loop, UV_RUN_NOWAIT);
    assert_int_equal(b.changes, 1);
    assert_true(supervisors_settled(b.supervisors, 7));

    assert_int_equal(order_spawn(&b, 3, &e), ERR_UNAVAILABLE);
    fd = meet_supervisor(&b, INT64_MAX / 2);
    assert_ok(order_spawn(&b, 3, &e), &e);
    assert_ok(control_receive(fd, &m, &e), &e);
    assert_int_equal(m.op, CONTROL_START);
    assert_int_equal(m.order.spawn, 3);
    control_message_release(&m);
    assert_int_equal(known_count(&b), 1);
    close(fd);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_order_to_an_ending_supervisor_waits_for_the_next_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
