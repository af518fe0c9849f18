#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <uv.h>

#include "daemon/agent/session.h"
#include "daemon/agent/settings.h"
#include "tests/unit/proto/fixture.h"

#define OFTEN_MS 50
#define SELDOM_MS 600000

/* The agent's side of a session. An end is one agent; the fixture is the coordinator. */
struct end {
    struct session *session;
    int beats, acks, wishes;
    bool welcomed, closed;
};

static void fill_hello(void *user, Ddp__V1__Hello *hello)
{
    (void)user;
    hello->node = (char *)"box";
}

static void fill_heartbeat(void *user, Ddp__V1__Heartbeat *beat)
{
    (void)beat;
    ((struct end *)user)->beats++;
}

static enum err_code on_welcome(void *user, const Ddp__V1__Welcome *welcome, struct err *e)
{
    (void)welcome;
    (void)e;
    ((struct end *)user)->welcomed = true;
    return ERR_OK;
}

static void on_ack(void *user, int64_t sent)
{
    (void)sent;
    ((struct end *)user)->acks++;
}

static void on_log_tail_rate(void *user, int64_t bytes_per_second)
{
    (void)user;
    (void)bytes_per_second;
}

static void on_wish(void *user, const Ddp__V1__Wish *wish)
{
    (void)wish;
    ((struct end *)user)->wishes++;
}

static void on_nothing(void *user)
{
    (void)user;
}

static void on_closed(void *user)
{
    ((struct end *)user)->closed = true;
}

static void end_open(struct end *end, uv_loop_t *loop, const struct fixture *coordinator)
{
    const struct session_events events = {.fill_hello = fill_hello,
                                          .fill_heartbeat = fill_heartbeat,
                                          .on_welcome = on_welcome,
                                          .on_ack = on_ack,
                                          .on_log_tail_rate = on_log_tail_rate,
                                          .on_wish = on_wish,
                                          .on_sendable = on_nothing,
                                          .on_lost = on_nothing,
                                          .user = end};
    const struct settings settings = {.coordinator = (char *)coordinator->target, .lifeline = -1};
    struct err e;

    *end = (struct end){0};
    assert_int_equal(session_open(&end->session, loop, &settings, &events, &e), ERR_OK);
}

static void ask_for_wish(const struct end *end)
{
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    Ddp__V1__Activity activity = DDP__V1__ACTIVITY__INIT;
    struct err e;

    up.body_case = DDP__V1__AGENT_UP__BODY_ACTIVITY;
    up.activity = &activity;
    assert_int_equal(session_send(end->session, &up, &e), ERR_OK);
}

#define TURN_UNTIL(loop, cond)                                                                               \
    do {                                                                                                     \
        while (!(cond))                                                                                      \
            uv_run(loop, UV_RUN_ONCE);                                                                       \
    } while (0)

static void an_acknowledgement_names_the_interval_until_a_wish(void **state)
{
    const struct fixture_options tells = {.tcp = "127.0.0.1:0", .welcome_ms = OFTEN_MS, .ack_ms = SELDOM_MS};
    const struct fixture_options silent = {.tcp = "127.0.0.1:0", .welcome_ms = OFTEN_MS};
    struct fixture patient, usual;
    struct end seldom, often;
    uv_loop_t loop;

    (void)state;
    fixture_start(&patient, &tells);
    fixture_start(&usual, &silent);
    uv_loop_init(&loop);
    end_open(&seldom, &loop, &patient);
    end_open(&often, &loop, &usual);
    TURN_UNTIL(&loop, seldom.acks == 2); /* of the hello, and of a heartbeat */
    const int known = seldom.beats, others = often.acks;
    TURN_UNTIL(&loop, often.acks >= others + 20);
    assert_in_range(seldom.beats, known, known + 1); /* one more may have been on its way */

    const int before = seldom.beats;
    ask_for_wish(&seldom);
    TURN_UNTIL(&loop, seldom.wishes == 1);
    assert_int_equal(seldom.beats, before + 1);
    TURN_UNTIL(&loop, seldom.beats == before + 2); /* it does not wait for ten minutes */

    session_close(seldom.session, on_closed, &seldom);
    session_close(often.session, on_closed, &often);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(seldom.closed && often.closed);
    assert_int_equal(uv_loop_close(&loop), 0);
    fixture_stop(&patient);
    fixture_stop(&usual);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_acknowledgement_names_the_interval_until_a_wish),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
