#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "fixture.h"

#define AGENT &ddp__v1__agent__descriptor

/* One session on a loop of this test. The callbacks record their calls here. */
struct seen {
    uv_loop_t loop;
    struct rpc_client *client;
    struct rpc_session *session;
    int opened, acks, ended, sendable;
    int64_t last;
    struct err status;
    void (*on_ack)(struct seen *seen);
    bool restart, closed, close_on_end;
};

static struct fixture server;

static enum err_code send_heartbeat(struct seen *seen, int64_t sequence, size_t weight, struct err *e)
{
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    Ddp__V1__Heartbeat heartbeat = DDP__V1__HEARTBEAT__INIT;
    Ddp__V1__Gpu gpu = DDP__V1__GPU__INIT, *gpus[] = {&gpu};
    CLEANUP(free_text) char *text = xcalloc(weight + 1, 1);

    memset(text, 'x', weight);
    gpu.problem = text;
    heartbeat.sequence = sequence;
    heartbeat.gpus = gpus;
    heartbeat.n_gpus = 1;
    up.body_case = DDP__V1__AGENT_UP__BODY_HEARTBEAT;
    up.heartbeat = &heartbeat;
    return rpc_session_send(seen->session, &up, e);
}

static void on_open(struct rpc_session *session, void *user)
{
    struct seen *seen = user;

    assert_ptr_equal(session, seen->session);
    seen->opened++;
}

static void on_message(struct rpc_session *session, const void *message, void *user)
{
    const Ddp__V1__AgentDown *down = message;
    struct seen *seen = user;

    (void)session;
    assert_int_equal(down->body_case, DDP__V1__AGENT_DOWN__BODY_ACK);
    assert_true(down->ack->sequence > seen->last);
    seen->last = down->ack->sequence;
    seen->acks++;
    if (seen->on_ack)
        seen->on_ack(seen);
}

static void on_sendable(struct rpc_session *session, void *user)
{
    (void)session;
    ((struct seen *)user)->sendable++;
}

static const struct rpc_session_events events;

static void on_closed(void *user)
{
    ((struct seen *)user)->closed = true;
}

static void on_end(struct rpc_session *session, const struct err *status, void *user)
{
    struct seen *seen = user;
    struct err e;

    assert_ptr_equal(session, seen->session);
    seen->ended++;
    seen->status = *status;
    seen->session = NULL;
    if (seen->restart) {
        seen->restart = false;
        seen->last = 0;
        seen->session = rpc_session_start(seen->client, AGENT, "Session", 0, &events, seen);
        assert_int_equal(send_heartbeat(seen, 1, 0, &e), ERR_OK);
    } else if (seen->close_on_end) {
        rpc_client_close(seen->client, on_closed, seen);
    }
}

static const struct rpc_session_events events = {on_open, on_message, on_sendable, on_end};

static void seen_open(struct seen *seen, const char *target, size_t queue)
{
    struct err e;

    memset(seen, 0, sizeof(*seen));
    uv_loop_init(&seen->loop);
    assert_int_equal(rpc_client_open(&seen->client, &seen->loop, target, NULL, &e), ERR_OK);
    seen->session = rpc_session_start(seen->client, AGENT, "Session", queue, &events, seen);
}

#define TURN_UNTIL(seen, cond)                                                                               \
    do {                                                                                                     \
        while (!(cond))                                                                                      \
            uv_run(&(seen)->loop, UV_RUN_ONCE);                                                              \
    } while (0)

static void seen_close(struct seen *seen)
{
    if (!seen->close_on_end)
        rpc_client_close(seen->client, on_closed, seen);
    uv_run(&seen->loop, UV_RUN_DEFAULT);
    assert_true(seen->closed);
    assert_null(seen->session);
    assert_int_equal(uv_loop_close(&seen->loop), 0);
}

static int session_setup(void **state)
{
    struct fixture_options options = {.tcp = "127.0.0.1:0"};

    (void)state;
    fixture_start(&server, &options);
    return 0;
}

static int session_teardown(void **state)
{
    (void)state;
    fixture_stop(&server);
    return 0;
}

static void next_heartbeat(struct seen *seen)
{
    struct err e;

    if (seen->acks < 100)
        assert_int_equal(send_heartbeat(seen, seen->last + 1, 0, &e), ERR_OK);
    else
        rpc_session_close_send(seen->session);
}

static void a_session_carries_messages_both_ways(void **state)
{
    struct seen seen;
    struct err e;

    (void)state;
    seen_open(&seen, server.target, 0);
    seen.on_ack = next_heartbeat;
    assert_int_equal(send_heartbeat(&seen, 1, 0, &e), ERR_OK);
    TURN_UNTIL(&seen, seen.ended);
    assert_int_equal(seen.status.code, ERR_OK);
    assert_int_equal(seen.opened, 1);
    assert_int_equal(seen.acks, 100);
    seen_close(&seen);
}

static void a_full_queue_refuses_messages(void **state)
{
    struct seen seen;
    struct err e;
    int64_t sent = 0;

    (void)state;
    seen_open(&seen, server.target, 20000);
    while (send_heartbeat(&seen, sent + 1, 1000, &e) == ERR_OK)
        sent++;
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    assert_in_range(sent, 15, 20);
    assert_in_range(rpc_session_queued(seen.session), 15000, 20000);
    TURN_UNTIL(&seen, seen.sendable);
    /* A message above the limit is refused while others wait in the queue. */
    assert_int_equal(send_heartbeat(&seen, ++sent, 100000, &e) ? e.code : ERR_RESOURCE_EXHAUSTED,
                     ERR_RESOURCE_EXHAUSTED);
    TURN_UNTIL(&seen, rpc_session_queued(seen.session) == 0);
    assert_int_equal(send_heartbeat(&seen, sent, 100000, &e), ERR_OK); /* accepted: the queue is empty */
    TURN_UNTIL(&seen, seen.last == sent);
    seen_close(&seen);
    assert_int_equal(seen.status.code, ERR_CANCELLED);
}

static void cancel_session(struct seen *seen)
{
    struct err e;

    rpc_session_cancel(seen->session);
    assert_int_equal(send_heartbeat(seen, 2, 0, &e), ERR_CANCELLED);
}

static void a_session_is_cancelled(void **state)
{
    struct seen seen;
    struct err e;

    (void)state;
    seen_open(&seen, server.target, 0);
    seen.on_ack = cancel_session;
    assert_int_equal(send_heartbeat(&seen, 1, 0, &e), ERR_OK);
    TURN_UNTIL(&seen, seen.ended);
    assert_int_equal(seen.status.code, ERR_CANCELLED);
    WAIT_FOR(atomic_load(&server.cancelled) == 1);
    seen_close(&seen);
}

static void a_session_without_a_server_fails(void **state)
{
    struct seen seen;

    (void)state;
    seen_open(&seen, "127.0.0.1:1", 0);
    seen.close_on_end = true;
    TURN_UNTIL(&seen, seen.ended);
    assert_int_equal(seen.status.code, ERR_UNAVAILABLE);
    assert_int_equal(seen.opened, 0);
    seen_close(&seen);
}

static void a_session_can_be_opened_again(void **state)
{
    struct seen seen;
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    Ddp__V1__Goodbye goodbye = DDP__V1__GOODBYE__INIT;
    struct err e;

    (void)state;
    seen_open(&seen, server.target, 0);
    seen.restart = true;
    up.body_case = DDP__V1__AGENT_UP__BODY_GOODBYE;
    up.goodbye = &goodbye;
    assert_int_equal(rpc_session_send(seen.session, &up, &e), ERR_OK);
    TURN_UNTIL(&seen, seen.acks == 1);
    assert_int_equal(seen.ended, 1);
    assert_int_equal(seen.status.code, ERR_FAILED_PRECONDITION);
    assert_string_equal(seen.status.msg, "goodbye");
    seen_close(&seen);
    assert_int_equal(seen.ended, 2);
}

static void fifty_sessions_share_a_client(void **state)
{
    static struct seen seen[50];
    struct err e;

    (void)state;
    seen_open(&seen[0], server.target, 0);
    for (int i = 1; i < 50; i++) {
        seen[i] = (struct seen){.client = seen[0].client};
        seen[i].session = rpc_session_start(seen[0].client, AGENT, "Session", 0, &events, &seen[i]);
    }
    for (int i = 0; i < 50; i++)
        assert_int_equal(send_heartbeat(&seen[i], 1, 0, &e), ERR_OK);
    for (int i = 0; i < 50; i++)
        TURN_UNTIL(&seen[0], seen[i].acks == 1);
    seen_close(&seen[0]);
    for (int i = 0; i < 50; i++)
        assert_int_equal(seen[i].status.code, ERR_CANCELLED);
}

static void clients_share_a_thread(void **state)
{
    static struct seen host, followers[20];
    struct err e;

    (void)state;
    seen_open(&host, server.target, 0);
    for (int i = 0; i < 20; i++) {
        followers[i] = (struct seen){0};
        assert_int_equal(rpc_client_open_beside(&followers[i].client, host.client, server.target, NULL, &e),
                         ERR_OK);
        followers[i].session =
            rpc_session_start(followers[i].client, AGENT, "Session", 0, &events, &followers[i]);
        followers[i].close_on_end = i % 2;
        assert_int_equal(send_heartbeat(&followers[i], 1, 0, &e), ERR_OK);
    }
    for (int i = 0; i < 20; i++)
        TURN_UNTIL(&host, followers[i].acks == 1);
    for (int i = 0; i < 20; i++) {
        if (followers[i].close_on_end)
            rpc_session_close_send(followers[i].session);
        else
            rpc_client_close(followers[i].client, on_closed, &followers[i]);
    }
    seen_close(&host);
    for (int i = 0; i < 20; i++)
        assert_true(followers[i].ended && followers[i].closed);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, session_setup, session_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_session_carries_messages_both_ways),
        TEST(a_full_queue_refuses_messages),
        TEST(a_session_is_cancelled),
        TEST(a_session_without_a_server_fails),
        TEST(a_session_can_be_opened_again),
        TEST(fifty_sessions_share_a_client),
        TEST(clients_share_a_thread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
