#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "fixture.h"
#include "proto/health.pb-c.h"

#define CLUSTER &ddp__v1__cluster__descriptor
#define AGENT &ddp__v1__agent__descriptor

typedef Ddp__V1__JobStatus job_status;

static struct fixture server;
static struct rpc_channel *channel;

static int calls_setup(void **state)
{
    struct fixture_options options = {.tcp = "127.0.0.1:0", .grace_ms = 2000};
    struct err e;

    (void)state;
    fixture_start(&server, &options);
    assert_int_equal(rpc_channel_open(&channel, server.target, NULL, &e), ERR_OK);
    return 0;
}

static int calls_teardown(void **state)
{
    (void)state;
    rpc_channel_close(channel);
    fixture_stop(&server);
    return 0;
}

static enum err_code get_job(int64_t job, int64_t timeout_ms, unsigned flags, job_status **out, struct err *e)
{
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;

    request.job = job;
    return rpc_channel_call(channel, CLUSTER, "GetJob", &request, (void **)out, timeout_ms, flags, e);
}

static struct rpc_stream *watch_job(int64_t job, int64_t timeout_ms)
{
    Ddp__V1__WatchJobRequest request = DDP__V1__WATCH_JOB_REQUEST__INIT;
    struct rpc_stream *stream;
    struct err e;

    request.job = job;
    assert_int_equal(rpc_stream_open(&stream, channel, CLUSTER, "WatchJob", &request, timeout_ms, 0, &e),
                     ERR_OK);
    return stream;
}

/* ---- unary calls ---- */

static void a_unary_call_gets_its_reply(void **state)
{
    CLEANUP(rpc_release) job_status *status = NULL;
    struct err e;

    (void)state;
    assert_int_equal(get_job(1, 5000, 0, &status, &e), ERR_OK);
    assert_int_equal(status->job, 1);
    assert_string_equal(status->name, "tcp");
    assert_in_range(status->created_ms, 1, 5100); /* gRPC rounds deadlines up */
}

static void a_handler_may_reply_later(void **state)
{
    CLEANUP(rpc_release) job_status *status = NULL;
    struct err e;

    (void)state;
    assert_int_equal(get_job(4, 0, 0, &status, &e), ERR_OK);
}

static void a_status_reaches_the_client(void **state)
{
    job_status *status = NULL;
    struct err e;

    (void)state;
    assert_int_equal(get_job(2, 5000, 0, &status, &e), ERR_NOT_FOUND);
    assert_string_equal(e.msg, "line\n100%");
    assert_null(status);
}

static void a_call_ends_at_its_deadline(void **state)
{
    job_status *status = NULL;
    struct err e;

    (void)state;
    assert_int_equal(get_job(3, 1000, RPC_IDEMPOTENT, &status, &e), ERR_DEADLINE_EXCEEDED);
    WAIT_FOR(atomic_load(&server.cancelled) == 1);
}

static void a_reply_that_is_not_utf8_is_refused(void **state)
{
    job_status *status = NULL;
    struct err e;

    (void)state;
    assert_int_equal(get_job(5, 5000, 0, &status, &e), ERR_INTERNAL);
    assert_non_null(strstr(e.msg, "JobStatus.reason"));
}

static void unknown_methods_are_unimplemented(void **state)
{
    Ddp__V1__CancelJobRequest request = DDP__V1__CANCEL_JOB_REQUEST__INIT;
    Ddp__V1__WatchRequest other = DDP__V1__WATCH_REQUEST__INIT;
    void *reply = NULL;
    struct err e;

    (void)state;
    assert_int_equal(rpc_channel_call(channel, CLUSTER, "CancelJob", &request, &reply, 5000, 0, &e),
                     ERR_UNIMPLEMENTED);
    assert_int_equal(
        rpc_channel_call(channel, &ddp__v1__rendezvous__descriptor, "Watch", &other, &reply, 5000, 0, &e),
        ERR_UNIMPLEMENTED);
    assert_null(reply);
}

static void idempotent_calls_are_retried(void **state)
{
    CLEANUP(rpc_release) job_status *status = NULL;
    struct err e;

    (void)state;
    assert_int_equal(get_job(8, 20000, RPC_IDEMPOTENT, &status, &e), ERR_OK);
    assert_int_equal(server.started, 3);
}

static void other_calls_are_not_retried(void **state)
{
    job_status *status = NULL;
    struct err e;

    (void)state;
    assert_int_equal(get_job(8, 20000, 0, &status, &e), ERR_UNAVAILABLE);
    assert_int_equal(server.started, 1);
}

static void *call_three(void *user)
{
    job_status *status = NULL;

    if (get_job(3, 0, RPC_IDEMPOTENT, &status, user) == ERR_OK)
        rpc_free(status);
    return NULL;
}

static void a_channel_is_cancelled_from_another_thread(void **state)
{
    struct err e = {0};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, call_three, &e), 0);
    WAIT_FOR(atomic_load(&server.started) == 1);
    rpc_channel_cancel(channel);
    pthread_join(thread, NULL);
    assert_int_equal(e.code, ERR_CANCELLED);
    WAIT_FOR(atomic_load(&server.cancelled) == 1);
    call_three(&e);
    assert_int_equal(e.code, ERR_CANCELLED);
}

static void a_call_without_a_server_fails_at_once(void **state)
{
    struct rpc_channel *nobody;
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
    void *reply;
    struct err e;

    (void)state;
    assert_int_equal(rpc_channel_open(&nobody, "127.0.0.1:1", NULL, &e), ERR_OK);
    assert_int_equal(rpc_channel_call(nobody, CLUSTER, "GetJob", &request, &reply, 20000, 0, &e),
                     ERR_UNAVAILABLE);
    rpc_channel_close(nobody);
}

static void invalid_targets_and_tokens_are_refused(void **state)
{
    static const char *const bad[] = {"",      "host",     "host:", "host:x", "host:99999", "::1:5",
                                      "[::1]", "unix:rel", ":5",    "host:0", "host:+5",    "[::1]5"};
    struct rpc_channel *none;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(rpc_channel_open(&none, bad[i], NULL, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(rpc_channel_open(&none, "h:1", &(struct rpc_channel_options){.token = "a\nb"}, &e),
                     ERR_INVALID_ARGUMENT);
}

/* ---- server streams ---- */

static void a_stream_delivers_all_messages_in_order(void **state)
{
    struct rpc_stream *stream = watch_job(1000, 0);
    struct err e;
    job_status *status;

    (void)state;
    for (int64_t i = 1; i <= 1000; i++) {
        assert_int_equal(rpc_stream_next(stream, -1, (void **)&status, &e), ERR_OK);
        assert_non_null(status);
        assert_int_equal(status->job, i);
        rpc_free(status);
    }
    assert_int_equal(rpc_stream_next(stream, -1, (void **)&status, &e), ERR_OK);
    assert_null(status);
    assert_true(rpc_stream_ended(stream));
    assert_int_equal(rpc_stream_next(stream, -1, (void **)&status, &e), ERR_OK);
    assert_null(status);
    rpc_stream_close(stream);
    WAIT_FOR(atomic_load(&server.ended) == 1);
    assert_int_equal(server.cancelled, 0);
}

static void a_streams_status_comes_after_its_messages(void **state)
{
    struct rpc_stream *stream = watch_job(-3, 0);
    job_status *status;
    struct err e;

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rpc_stream_next(stream, -1, (void **)&status, &e), ERR_OK);
        rpc_free(status);
    }
    assert_int_equal(rpc_stream_next(stream, -1, (void **)&status, &e), ERR_ABORTED);
    assert_string_equal(e.msg, "generation 4 is current");
    rpc_stream_close(stream);
}

static void a_wait_for_a_message_may_time_out(void **state)
{
    struct rpc_stream *stream = watch_job(-2, 0);
    job_status *status;
    struct err e;

    (void)state;
    assert_int_equal(rpc_stream_next(stream, -1, (void **)&status, &e), ERR_OK);
    rpc_free(status);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rpc_stream_next(stream, 10, (void **)&status, &e), ERR_DEADLINE_EXCEEDED);
        assert_false(rpc_stream_ended(stream));
    }
    rpc_stream_close(stream);
    WAIT_FOR(atomic_load(&server.cancelled) == 1);
}

static void a_streams_own_deadline_ends_it(void **state)
{
    struct rpc_stream *stream = watch_job(-2, 2000);
    job_status *status;
    struct err e;

    (void)state;
    assert_int_equal(rpc_stream_next(stream, -1, (void **)&status, &e), ERR_OK);
    rpc_free(status);
    assert_int_equal(rpc_stream_next(stream, -1, (void **)&status, &e), ERR_DEADLINE_EXCEEDED);
    assert_true(rpc_stream_ended(stream));
    rpc_stream_close(stream);
}

static void *cancel_stream(void *user)
{
    rpc_stream_cancel(user);
    return NULL;
}

static void a_stream_is_cancelled_from_another_thread(void **state)
{
    struct rpc_stream *stream = watch_job(-2, 0);
    pthread_t thread;
    job_status *status;
    struct err e;

    (void)state;
    assert_int_equal(rpc_stream_next(stream, -1, (void **)&status, &e), ERR_OK);
    rpc_free(status);
    assert_int_equal(pthread_create(&thread, NULL, cancel_stream, stream), 0);
    assert_int_equal(rpc_stream_next(stream, -1, (void **)&status, &e), ERR_CANCELLED);
    pthread_join(thread, NULL);
    rpc_stream_close(stream);
}

static void a_slow_reader_stops_the_sender(void **state)
{
    struct rpc_stream *stream = watch_job(-1, 0);
    job_status *status;
    struct err e;
    int before;

    (void)state;
    assert_int_equal(rpc_stream_next(stream, -1, (void **)&status, &e), ERR_OK);
    rpc_free(status);
    do { /* wait until the sender sends nothing for a second, during which other calls run */
        before = atomic_load(&server.sent);
        for (int i = 0; i < 20; i++)
            assert_int_equal(get_job(3, 50, 0, &status, &e), ERR_DEADLINE_EXCEEDED);
    } while (before != atomic_load(&server.sent));
    assert_in_range(before, 2, 20000);
    for (int i = 0; i < before + 1000; i++) {
        assert_int_equal(rpc_stream_next(stream, -1, (void **)&status, &e), ERR_OK);
        rpc_free(status);
    }
    assert_true(atomic_load(&server.sent) > before);
    rpc_stream_close(stream);
}

/* ---- sessions ---- */

static void send_heartbeat(struct rpc_stream *stream, int64_t sequence)
{
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    Ddp__V1__Heartbeat heartbeat = DDP__V1__HEARTBEAT__INIT;
    struct err e;

    heartbeat.sequence = sequence;
    up.body_case = DDP__V1__AGENT_UP__BODY_HEARTBEAT;
    up.heartbeat = &heartbeat;
    assert_int_equal(rpc_stream_send(stream, &up, &e), ERR_OK);
}

static void a_session_carries_messages_both_ways(void **state)
{
    struct rpc_stream *stream;
    Ddp__V1__AgentDown *down;
    struct err e;

    (void)state;
    assert_int_equal(rpc_stream_open(&stream, channel, AGENT, "Session", NULL, 0, 0, &e), ERR_OK);
    for (int64_t i = 1; i <= 200; i++) {
        send_heartbeat(stream, i);
        assert_int_equal(rpc_stream_next(stream, -1, (void **)&down, &e), ERR_OK);
        assert_int_equal(down->ack->sequence, i);
        rpc_free(down);
    }
    assert_int_equal(rpc_stream_close_send(stream, &e), ERR_OK);
    assert_int_equal(rpc_stream_next(stream, -1, (void **)&down, &e), ERR_OK);
    assert_null(down);
    rpc_stream_close(stream);
}

static void a_session_ends_when_the_server_fails_it(void **state)
{
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    Ddp__V1__Goodbye goodbye = DDP__V1__GOODBYE__INIT;
    struct rpc_stream *stream;
    void *down;
    struct err e;

    (void)state;
    up.body_case = DDP__V1__AGENT_UP__BODY_GOODBYE;
    up.goodbye = &goodbye;
    assert_int_equal(rpc_stream_open(&stream, channel, AGENT, "Session", NULL, 0, 0, &e), ERR_OK);
    assert_int_equal(rpc_stream_send(stream, &up, &e), ERR_OK);
    assert_int_equal(rpc_stream_next(stream, -1, &down, &e), ERR_FAILED_PRECONDITION);
    assert_int_equal(rpc_stream_send(stream, &up, &e), ERR_FAILED_PRECONDITION);
    rpc_stream_close(stream);
}

/* ---- health ---- */

#define HEALTH &grpc__health__v1__health__descriptor
#define SERVING GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING

static void the_health_service_reports_serving(void **state)
{
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    CLEANUP(rpc_release) Grpc__Health__V1__HealthCheckResponse *reply = NULL;
    void *none;
    struct err e;

    (void)state;
    request.service = (char *)"ddp.v1.Cluster";
    assert_int_equal(rpc_channel_call(channel, HEALTH, "Check", &request, (void **)&reply, 5000, 0, &e),
                     ERR_OK);
    assert_int_equal(reply->status, SERVING);
    request.service = (char *)"nobody";
    assert_int_equal(rpc_channel_call(channel, HEALTH, "Check", &request, &none, 5000, 0, &e), ERR_NOT_FOUND);
}

static void health_watchers_see_the_drain(void **state)
{
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    Grpc__Health__V1__HealthCheckResponse *reply;
    struct rpc_stream *stream;
    struct err e;

    (void)state;
    assert_int_equal(rpc_stream_open(&stream, channel, HEALTH, "Watch", &request, 0, 0, &e), ERR_OK);
    assert_int_equal(rpc_stream_next(stream, -1, (void **)&reply, &e), ERR_OK);
    assert_int_equal(reply->status, SERVING);
    rpc_free(reply);
    fixture_drain(&server);
    assert_int_equal(rpc_stream_next(stream, -1, (void **)&reply, &e), ERR_OK);
    assert_int_equal(reply->status, NOT_SERVING);
    rpc_free(reply);
    assert_int_equal(rpc_stream_next(stream, -1, (void **)&reply, &e), ERR_UNAVAILABLE);
    assert_string_equal(e.msg, "draining");
    rpc_stream_close(stream);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, calls_setup, calls_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_unary_call_gets_its_reply),
        TEST(a_handler_may_reply_later),
        TEST(a_status_reaches_the_client),
        TEST(a_call_ends_at_its_deadline),
        TEST(a_reply_that_is_not_utf8_is_refused),
        TEST(unknown_methods_are_unimplemented),
        TEST(idempotent_calls_are_retried),
        TEST(other_calls_are_not_retried),
        TEST(a_channel_is_cancelled_from_another_thread),
        TEST(a_call_without_a_server_fails_at_once),
        TEST(invalid_targets_and_tokens_are_refused),
        TEST(a_stream_delivers_all_messages_in_order),
        TEST(a_streams_status_comes_after_its_messages),
        TEST(a_wait_for_a_message_may_time_out),
        TEST(a_streams_own_deadline_ends_it),
        TEST(a_stream_is_cancelled_from_another_thread),
        TEST(a_slow_reader_stops_the_sender),
        TEST(a_session_carries_messages_both_ways),
        TEST(a_session_ends_when_the_server_fails_it),
        TEST(the_health_service_reports_serving),
        TEST(health_watchers_see_the_drain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
