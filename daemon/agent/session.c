#include "daemon/agent/session.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/clock.h"
#include "base/crypto/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/net/port_owner.h"
#include "daemon/agent/settings.h"
#include "daemon/agent/wish.h"
#include "proto/rpc_address.h"
#include "proto/rpc_client.h"

#define HEARTBEAT_MS 3000
#define BACKOFF_FIRST_MS 100
#define BACKOFF_MOST_MS 5000
#define SEND_QUEUE (8u << 20) /* facts with many exit records, log pieces */
#define SILENCE_BEATS 4       /* unanswered heartbeats before the stream counts as dead */
#define SOCKET_MS 20000       /* ddpctl run gives its coordinator this long to start */
#define IN_FLIGHT 64          /* heartbeats whose sending time is remembered */

struct session {
    struct uv_loop_s *loop;
    struct session_events events;
    struct rpc_tls_files tls;
    struct rpc_client *client;
    int own_port;               /* the token is sent only while this user listens there; 0: always */
    struct rpc_session *stream; /* NULL: waiting for the next try */
    uv_timer_t *timer;          /* next heartbeat, or next try */
    bool welcomed, leaving, closing;
    bool renewing;        /* the stream ends because of session_renew: no failure to log */
    int64_t heartbeat_ms; /* of the welcome */
    int64_t beat_ms;      /* the current interval, from the last acknowledgement */
    int64_t backoff_ms;
    int64_t sequence, acked, hello_sent;
    int64_t sent[IN_FLIGHT]; /* by sequence */
    int64_t *cards_due;      /* jobs whose cards the coordinator wants before its welcome */
    size_t cards_left;
    char last_error[512]; /* each cause is logged once */
    void (*on_closed)(void *user);
    void *closed_user;
};

static void session_dial(struct session *s);
static void on_session_timer(uv_timer_t *timer);

/* ±10 %, so that the agents of a cluster do not send their heartbeats at the same moment. */
static uint64_t interval_jitter(int64_t ms)
{
    uint16_t random;

    id_random(&random, sizeof(random));
    return (uint64_t)(ms * 9 / 10 + ms * random / 5 / 65536);
}

static void session_timer_set(struct session *s, int64_t ms)
{
    BUG_ON(uv_timer_start(s->timer, on_session_timer, interval_jitter(ms), 0));
}

static enum err_code session_send_up(struct session *s, const Ddp__V1__AgentUp *up, struct err *e)
{
    if (!s->stream)
        return err_set(e, ERR_UNAVAILABLE, "no coordinator");
    return rpc_session_send(s->stream, up, e);
}

static void heartbeat_send(struct session *s)
{
    Ddp__V1__AgentUp up;
    Ddp__V1__Heartbeat heartbeat;
    struct err e;

    ddp__v1__agent_up__init(&up);
    ddp__v1__heartbeat__init(&heartbeat);
    s->events.fill_heartbeat(s->events.user, &heartbeat);
    heartbeat.sequence = ++s->sequence;
    s->sent[s->sequence % IN_FLIGHT] = clock_boot_ms();
    /* Until it is acknowledged, others follow at the usual interval, so that a dead stream is noticed in time. */
    session_timer_set(s, s->heartbeat_ms);
    up.body_case = DDP__V1__AGENT_UP__BODY_HEARTBEAT;
    up.heartbeat = &heartbeat;
    if (session_send_up(s, &up, &e))
        log_debug("heartbeat_not_sent", "why=%s", LOG_Q(e.msg));
}

static void on_session_timer(uv_timer_t *timer)
{
    struct session *s = timer->data;

    if (!s->stream && s->leaving) {
        session_close(s, s->on_closed, s->closed_user);
        return;
    }
    if (!s->stream) {
        session_dial(s);
        return;
    }
    if (s->sequence - s->acked >= SILENCE_BEATS || !s->welcomed) {
        log_warn("coordinator_silent", "heartbeats=%d", (int)(s->sequence - s->acked));
        rpc_session_cancel(s->stream); /* on_stream_end dials again */
        return;
    }
    heartbeat_send(s);
}

static void session_send_hello(struct session *s)
{
    Ddp__V1__AgentUp up;
    Ddp__V1__Hello hello;
    char id[ID_TEXT];
    struct err e;

    ddp__v1__agent_up__init(&up);
    ddp__v1__hello__init(&hello);
    s->events.fill_hello(s->events.user, &hello);
    id_text(id);
    hello.session = id;
    up.body_case = DDP__V1__AGENT_UP__BODY_HELLO;
    up.hello = &hello;
    s->hello_sent = clock_boot_ms();
    s->sequence = s->acked = 0;
    if (session_send_up(s, &up, &e))
        log_warn("hello_not_sent", "why=%s", LOG_Q(e.msg));
}

/* A cause is logged once, not at every try: a coordinator that is away would fill the log. */
static bool error_is_new(struct session *s, const char *why)
{
    bool news = strcmp(s->last_error, why) != 0;

    snprintf(s->last_error, sizeof(s->last_error), "%s", why);
    return news;
}

static void session_welcome(struct session *s, const Ddp__V1__Welcome *w)
{
    struct err e;

    if (s->events.on_welcome(s->events.user, w, &e)) {
        if (error_is_new(s, e.msg))
            log_error("coordinator_refused", "why=%s", LOG_Q(e.msg));
        rpc_session_cancel(s->stream);
        return;
    }
    s->welcomed = true;
    s->last_error[0] = '\0';
    s->backoff_ms = BACKOFF_FIRST_MS;
    if (w->heartbeat_ms > 0)
        s->heartbeat_ms = w->heartbeat_ms;
    s->beat_ms = s->heartbeat_ms;
    s->events.on_log_tail_rate(s->events.user, w->log_tail_rate);
    s->events.on_ack(s->events.user, s->hello_sent);
    session_timer_set(s, s->heartbeat_ms);
}

/* A wish may bring workers, and heartbeats renew their leases. So a node that has sent heartbeats less often sends one now, and
 * the next ones at the usual interval. */
static void session_beat_usually(struct session *s)
{
    if (s->beat_ms == s->heartbeat_ms)
        return;
    s->beat_ms = s->heartbeat_ms;
    heartbeat_send(s);
}

static void heartbeat_acknowledge(struct session *s, int64_t sequence)
{
    if (sequence <= s->acked || sequence > s->sequence || s->sequence - sequence >= IN_FLIGHT)
        return;
    s->acked = sequence;
    if (s->acked == s->sequence && s->beat_ms > s->heartbeat_ms)
        session_timer_set(s, s->beat_ms);
    s->events.on_ack(s->events.user, s->sent[sequence % IN_FLIGHT]);
}

/* Sends as many cards as the queue takes now; the rest when it is sendable again. */
static void cards_send(struct session *s)
{
    while (s->cards_left) {
        int64_t job = s->cards_due[s->cards_left - 1];
        CLEANUP(rpc_release) Ddp__V1__JobCard *card = s->events.on_card_wanted(s->events.user, job);
        Ddp__V1__JobCard none = DDP__V1__JOB_CARD__INIT;
        Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
        struct err e;

        none.job = job;
        up.body_case = DDP__V1__AGENT_UP__BODY_CARD;
        up.card = card ? card : &none;
        if (session_send_up(s, &up, &e)) {
            if (e.code != ERR_RESOURCE_EXHAUSTED)
                log_warn("card_not_sent", "job=%lld why=%s", (long long)job, LOG_Q(e.msg));
            return;
        }
        s->cards_left--;
    }
}

static void cards_queue(struct session *s, const Ddp__V1__CardsRequested *wanted)
{
    log_info("cards_requested", "count=%zu", wanted->n_jobs);
    free(s->cards_due);
    s->cards_due = xmemdup(wanted->jobs, wanted->n_jobs * sizeof(*wanted->jobs));
    s->cards_left = wanted->n_jobs;
    cards_send(s);
}

static void on_stream_message(struct rpc_session *stream, const void *message, void *user)
{
    const Ddp__V1__AgentDown *down = message;
    struct session *s = user;

    (void)stream;
    if (!s->welcomed && down->body_case == DDP__V1__AGENT_DOWN__BODY_CARDS_REQUESTED &&
        down->cards_requested->n_jobs)
        cards_queue(s, down->cards_requested);
    /* before the welcome it is not known whether this is the right cluster */
    if (!s->welcomed && down->body_case != DDP__V1__AGENT_DOWN__BODY_WELCOME)
        return;
    switch (down->body_case) {
    case DDP__V1__AGENT_DOWN__BODY_WELCOME:
        session_welcome(s, down->welcome);
        break;
    case DDP__V1__AGENT_DOWN__BODY_ACK:
        s->events.on_log_tail_rate(s->events.user, down->ack->log_tail_rate);
        s->beat_ms = down->ack->heartbeat_ms > 0 ? down->ack->heartbeat_ms : s->heartbeat_ms;
        heartbeat_acknowledge(s, down->ack->sequence);
        break;
    case DDP__V1__AGENT_DOWN__BODY_WISH:
        session_beat_usually(s);
        s->events.on_wish(s->events.user, down->wish);
        break;
    case DDP__V1__AGENT_DOWN__BODY_LOG_READ:
        s->events.on_log_read(s->events.user, down->log_read);
        break;
    case DDP__V1__AGENT_DOWN__BODY_PROBE:
        s->events.on_probe(s->events.user, down->probe);
        break;
    case DDP__V1__AGENT_DOWN__BODY_CHECK:
        s->events.on_check(s->events.user, down->check);
        break;
    case DDP__V1__AGENT_DOWN__BODY_CLEAR_GPU_FAULTS:
        s->events.on_gpus_cleared(s->events.user);
        break;
    case DDP__V1__AGENT_DOWN__BODY_DELETE_LOGS:
        s->events.on_logs_deleted(s->events.user, down->delete_logs->job);
        break;
    default:
        break; /* only a newer coordinator sends it */
    }
}

static void on_stream_sendable(struct rpc_session *stream, void *user)
{
    struct session *s = user;

    (void)stream;
    cards_send(s);
    s->events.on_sendable(s->events.user);
}

static void session_try_later(struct session *s)
{
    session_timer_set(s, s->leaving ? 0 : s->backoff_ms);
    s->backoff_ms = s->backoff_ms * 2 < BACKOFF_MOST_MS ? s->backoff_ms * 2 : BACKOFF_MOST_MS;
}

static void on_stream_end(struct rpc_session *stream, const struct err *status, void *user)
{
    struct session *s = user;
    const char *why = status->code ? status->msg : "the coordinator closed the stream";

    (void)stream;
    s->stream = NULL;
    s->cards_left = 0;
    if (s->closing)
        return;
    if (s->welcomed)
        s->events.on_lost(s->events.user);
    if (!s->renewing && error_is_new(s, why))
        log_warn("coordinator_lost", "code=%s why=%s", err_code_name(status->code), LOG_Q(why));
    s->welcomed = s->renewing = false;
    session_try_later(s);
}

static const struct rpc_session_events stream_events = {
    .on_message = on_stream_message, .on_sendable = on_stream_sendable, .on_end = on_stream_end};

/* Whether the token may be sent. Another user may have taken the port since the coordinator was last there. */
static bool coordinator_is_own(struct session *s)
{
    const enum port_owner owner = s->own_port ? port_owner_find(s->own_port) : PORT_OF_THIS_USER;
    const char *why = owner == PORT_OF_ANOTHER ? "another user listens at the coordinator's port"
                                               : "nobody listens at the coordinator's port";

    if (owner != PORT_OF_THIS_USER && error_is_new(s, why))
        log_warn("token_not_sent", "port=%d why=%s", s->own_port, LOG_Q(why));
    return owner == PORT_OF_THIS_USER;
}

static void session_dial(struct session *s)
{
    if (!coordinator_is_own(s)) {
        session_try_later(s);
        return;
    }
    s->stream =
        rpc_session_start(s->client, &ddp__v1__agent__descriptor, "Session", SEND_QUEUE, &stream_events, s);
    session_send_hello(s);
    session_timer_set(s, s->heartbeat_ms * SILENCE_BEATS); /* time limit for the welcome */
}

/* `ddpctl run` starts coordinator and agent at the same time. The coordinator's socket appears in a moment,
 * but after a refused connection gRPC would wait longer than that. So this waits for the socket first. */
static void coordinator_socket_await(const struct settings *settings)
{
    struct pollfd gone = {.fd = settings->lifeline, .events = POLLIN};
    int64_t end = clock_boot_ms() + SOCKET_MS;

    while (settings->lifeline >= 0 && clock_boot_ms() < end && rpc_address_absent(settings->coordinator))
        if (poll(&gone, 1, 1) != 0)
            return;
}

enum err_code session_open(struct session **out, struct uv_loop_s *loop, const struct settings *settings,
                           const struct session_events *events, struct err *e)
{
    struct session *s = xcalloc(1, sizeof(*s));
    struct rpc_channel_options options = {
        .token = settings->token, .keepalive_ms = SESSION_KEEPALIVE_MS, .max_receive = WISH_MAX};
    struct rpc_address address;

    if (rpc_address_parse(settings->coordinator, &address, e)) {
        free(s);
        return e->code;
    }
    s->own_port = settings->own_port ? address.port : 0;
    s->loop = loop;
    s->events = *events;
    s->heartbeat_ms = HEARTBEAT_MS;
    s->backoff_ms = BACKOFF_FIRST_MS;
    if (settings->tls.ca) {
        s->tls = (struct rpc_tls_files){settings->tls.ca, settings->tls.cert, settings->tls.key};
        options.tls = &s->tls;
    }
    if (rpc_client_open(&s->client, loop, settings->coordinator, &options, e)) {
        free(s);
        return e->code;
    }
    /* on the heap, because it closes after the session is freed */
    s->timer = xcalloc(1, sizeof(*s->timer));
    BUG_ON(uv_timer_init(loop, s->timer));
    s->timer->data = s;
    coordinator_socket_await(settings);
    session_dial(s);
    *out = s;
    return ERR_OK;
}

static void session_timer_free(uv_handle_t *handle)
{
    free(handle);
}

static void on_client_closed(void *user)
{
    struct session *s = user;

    if (s->on_closed)
        s->on_closed(s->closed_user);
    free(s->cards_due);
    free(s);
}

void session_close(struct session *s, void (*on_closed)(void *user), void *user)
{
    s->closing = true;
    s->on_closed = on_closed;
    s->closed_user = user;
    uv_close((uv_handle_t *)s->timer, session_timer_free);
    rpc_client_close(s->client, on_client_closed, s);
}

void session_leave(struct session *s, void (*on_closed)(void *user), void *user)
{
    Ddp__V1__Goodbye goodbye = DDP__V1__GOODBYE__INIT;
    Ddp__V1__AgentUp up;
    struct err e;

    ddp__v1__agent_up__init(&up);
    up.body_case = DDP__V1__AGENT_UP__BODY_GOODBYE;
    up.goodbye = &goodbye;
    if (session_send(s, &up, &e)) {
        session_close(s, on_closed, user);
        return;
    }
    s->leaving = true;
    s->on_closed = on_closed;
    s->closed_user = user;
    rpc_session_close_send(s->stream); /* the coordinator ends the stream, and then the session closes */
}

void session_renew(struct session *s)
{
    s->renewing = s->stream;
    if (s->stream)
        rpc_session_cancel(s->stream);
}

void session_beat(struct session *s)
{
    if (session_welcomed(s))
        heartbeat_send(s);
}

bool session_welcomed(const struct session *s)
{
    return s && s->welcomed && s->stream;
}

enum err_code session_send(struct session *s, const Ddp__V1__AgentUp *message, struct err *e)
{
    if (!session_welcomed(s))
        return err_set(e, ERR_UNAVAILABLE, "no coordinator");
    return session_send_up(s, message, e);
}
