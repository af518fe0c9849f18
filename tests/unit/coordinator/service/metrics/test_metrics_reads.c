/* Users' reads of metrics wait for each other, so that the points of only one are in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <uv.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/coordinator/service/metrics/metrics_recorder.h"
#include "proto/ddp.pb-c.h"

enum { POINTS = 1000, CALLS = METRICS_RECORDER_READS + 6 };

/* Takes the place of an rpc_call. The recorder only passes it on. */
struct fake_call {
    int refs, replies, failures;
    enum err_code code;
    bool over;
};
static struct fake_call calls[CALLS];
static int replied; /* calls so far */
static atomic_int held, most_held, read_count;

enum err_code __wrap_metrics_read(struct metrics *m, const struct metrics_query *query,
                                  struct metric_point **out, size_t *count, bool *thinned, struct err *e);
struct rpc_call *__wrap_rpc_call_ref(struct rpc_call *call);
void __wrap_rpc_call_unref(struct rpc_call *call);
bool __wrap_rpc_call_over(const struct rpc_call *call);
void __wrap_rpc_call_reply(struct rpc_call *call, const void *message);
void __wrap_rpc_call_fail(struct rpc_call *call, const struct err *status);
void __wrap_rpc_call_fail_with(struct rpc_call *call, enum err_code code, const char *fmt, ...);

enum err_code __wrap_metrics_read(struct metrics *m, const struct metrics_query *query,
                                  struct metric_point **out, size_t *count, bool *thinned, struct err *e)
{
    (void)m, (void)query, (void)e;
    *out = xcalloc(POINTS, sizeof **out);
    *count = POINTS;
    *thinned = true;
    read_count++;
    const int now = atomic_fetch_add(&held, POINTS) + POINTS;
    if (now > most_held)
        most_held = now;
    return ERR_OK;
}

struct rpc_call *__wrap_rpc_call_ref(struct rpc_call *call)
{
    ((struct fake_call *)call)->refs++;
    return call;
}

void __wrap_rpc_call_unref(struct rpc_call *call)
{
    ((struct fake_call *)call)->refs--;
}

bool __wrap_rpc_call_over(const struct rpc_call *call)
{
    return ((const struct fake_call *)call)->over;
}

void __wrap_rpc_call_reply(struct rpc_call *call, const void *message)
{
    const Ddp__V1__GetMetricsReply *reply = message;
    struct fake_call *fake = (struct fake_call *)call;
    assert_int_equal(reply->n_points, POINTS);
    assert_true(reply->thinned);             /* as the store says */
    assert_ptr_equal(fake, &calls[replied]); /* in their order */
    fake->replies++;
    replied++;
    held -= POINTS;
}

void __wrap_rpc_call_fail(struct rpc_call *call, const struct err *status)
{
    struct fake_call *fake = (struct fake_call *)call;
    fake->failures++;
    fake->code = status->code;
}

void __wrap_rpc_call_fail_with(struct rpc_call *call, enum err_code code, const char *fmt, ...)
{
    (void)fmt;
    __wrap_rpc_call_fail(call, &(struct err){.code = code});
}

struct fixture {
    char dir[64];
    uv_loop_t loop;
    struct metrics_recorder *recorder;
};

static int open_recorder(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    struct err e;
    memset(calls, 0, sizeof calls);
    replied = 0;
    held = most_held = read_count = 0;
    strcpy(f->dir, "/tmp/ddp-test-reads-XXXXXX");
    *state = f;
    return mkdtemp(f->dir) && uv_loop_init(&f->loop) == 0 &&
                   metrics_recorder_open(&f->recorder, &f->loop, f->dir, &e) == ERR_OK
               ? 0
               : -1;
}

static int close_recorder(void **state)
{
    struct fixture *f = *state;
    struct err e;
    metrics_recorder_close(f->recorder);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    for (int i = 0; i < CALLS; i++)
        assert_int_equal(calls[i].refs, 0);
    assert_int_equal(file_remove_tree(f->dir, &e), ERR_OK);
    free(f);
    return 0;
}

static void ask_for_points(struct fixture *f, int first, int end)
{
    const struct metrics_query query = {.job = 1};
    for (int i = first; i < end; i++)
        metrics_recorder_read(f->recorder, (struct rpc_call *)&calls[i], &query);
}

static void the_points_of_one_read_are_held_at_a_time(void **state)
{
    struct fixture *f = *state;
    ask_for_points(f, 0, 20);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(replied, 20);
    assert_int_equal(most_held, POINTS);
}

static void too_many_reads_that_wait_are_refused(void **state)
{
    struct fixture *f = *state;
    ask_for_points(f, 0, CALLS);
    for (int i = 0; i < CALLS; i++) /* one is in progress, and does not wait */
        assert_int_equal(calls[i].code, i <= METRICS_RECORDER_READS ? ERR_OK : ERR_RESOURCE_EXHAUSTED);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(replied, METRICS_RECORDER_READS + 1);
    ask_for_points(f, replied, CALLS); /* again: there is room */
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(replied, CALLS);
}

static void nothing_is_read_for_a_client_that_has_gone(void **state)
{
    struct fixture *f = *state;
    ask_for_points(f, 0, 3);
    calls[1].over = calls[2].over = true;
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(read_count, 1);
}

static void a_closing_recorder_answers_the_reads_that_wait(void **state)
{
    struct fixture *f = *state;
    ask_for_points(f, 0, 5);
    metrics_recorder_close(f->recorder);
    f->recorder = NULL;
    assert_int_equal(replied, 5);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_recorder, close_recorder)
    const struct CMUnitTest tests[] = {
        CASE(the_points_of_one_read_are_held_at_a_time),
        CASE(too_many_reads_that_wait_are_refused),
        CASE(nothing_is_read_for_a_client_that_has_gone),
        CASE(a_closing_recorder_answers_the_reads_that_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
