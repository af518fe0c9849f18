#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "fixture.h"

/* How many HTTP/2 frames a session takes. A proxy between client and server counts HTTP/2 frames. */

#define BEATS 20
#define QUIET_MS 600000 /* no keepalive in this test */
#define FRAME_DATA 0
#define FRAME_PING 6
#define FRAME_WINDOW_UPDATE 8
#define PREFACE 24 /* bytes that a client sends before its first frame */

struct direction {
    size_t skip; /* bytes of the preface, or of a frame's payload, still to come */
    uint8_t head[9];
    size_t head_len;
    atomic_int frames[16]; /* by type */
    bool after_update;     /* the last frame said how much of a stream was read */
    atomic_int joined;     /* DATA frames directly after such a frame: both came with one write */
};

struct proxy {
    int listener, ends[2]; /* ends: client, server */
    int port, server_port;
    struct direction up, down;
    pthread_t thread;
};

static void frames_count(struct direction *d, const uint8_t *data, size_t len)
{
    while (len) {
        if (d->skip) {
            const size_t part = d->skip < len ? d->skip : len;
            d->skip -= part;
            data += part;
            len -= part;
            continue;
        }
        d->head[d->head_len++] = *data++;
        len--;
        if (d->head_len == sizeof(d->head)) {
            d->head_len = 0;
            d->skip = (size_t)d->head[0] << 16 | (size_t)d->head[1] << 8 | d->head[2];
            atomic_fetch_add(&d->frames[d->head[3] & 15], 1);
            if (d->head[3] == FRAME_DATA && d->after_update)
                atomic_fetch_add(&d->joined, 1);
            d->after_update =
                d->head[3] == FRAME_WINDOW_UPDATE && d->head[8]; /* of a stream, not of the connection */
        }
    }
}

/* Returns false at the end of the connection. */
static bool proxy_pass(int from, int to, struct direction *d)
{
    uint8_t data[4096];
    const ssize_t n = read(from, data, sizeof(data));

    if (n <= 0)
        return false;
    frames_count(d, data, (size_t)n);
    for (ssize_t done = 0, put; done < n; done += put)
        if ((put = send(to, data + done, (size_t)(n - done), MSG_NOSIGNAL)) < 0)
            return false;
    return true;
}

static int server_connect(int port)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    BUG_ON(connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0);
    return fd;
}

/* Carries one connection until one side ends it. */
static void *proxy_run(void *user)
{
    struct proxy *p = user;
    bool open = true;

    p->ends[0] = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
    p->ends[1] = server_connect(p->server_port);
    while (open) {
        struct pollfd polled[] = {{.fd = p->ends[0], .events = POLLIN}, {.fd = p->ends[1], .events = POLLIN}};
        poll(polled, 2, -1);
        if (polled[0].revents)
            open = proxy_pass(p->ends[0], p->ends[1], &p->up);
        if (open && polled[1].revents)
            open = proxy_pass(p->ends[1], p->ends[0], &p->down);
    }
    close_fd(&p->ends[0]);
    close_fd(&p->ends[1]);
    return NULL;
}

static void proxy_start(struct proxy *p, int server_port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);

    *p = (struct proxy){.server_port = server_port, .up.skip = PREFACE, .ends = {-1, -1}};
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(p->listener, (const struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(p->listener, 1), 0);
    assert_int_equal(getsockname(p->listener, (struct sockaddr *)&at, &size), 0);
    p->port = ntohs(at.sin_port);
    assert_int_equal(pthread_create(&p->thread, NULL, proxy_run, p), 0);
}

/* ---- an agent */

struct agent {
    struct rpc_session *session;
    int acks;
    bool ended, closed;
};

static void beat_send(struct agent *agent)
{
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    Ddp__V1__Heartbeat beat = DDP__V1__HEARTBEAT__INIT;
    struct err e;

    beat.sequence = agent->acks + 1;
    up.body_case = DDP__V1__AGENT_UP__BODY_HEARTBEAT;
    up.heartbeat = &beat;
    assert_int_equal(rpc_session_send(agent->session, &up, &e), ERR_OK);
}

static void on_message(struct rpc_session *session, const void *message, void *user)
{
    struct agent *agent = user;

    (void)message;
    if (++agent->acks < BEATS)
        beat_send(agent);
    else
        rpc_session_close_send(session);
}

static void on_end(struct rpc_session *session, const struct err *status, void *user)
{
    (void)session;
    assert_int_equal(status->code, ERR_OK);
    ((struct agent *)user)->ended = true;
}

static void on_closed(void *user)
{
    ((struct agent *)user)->closed = true;
}

/* No pings accompany heartbeats, and what a server says about its window takes no write of its own. */
static void a_heartbeat_takes_few_frames(void **state)
{
    static const struct rpc_session_events events = {.on_message = on_message, .on_end = on_end};
    const struct fixture_options options = {
        .tcp = "127.0.0.1:0", .keepalive_ms = QUIET_MS, .keepalive_timeout_ms = QUIET_MS, .late = true};
    const struct rpc_channel_options quiet = {.keepalive_ms = QUIET_MS, .keepalive_timeout_ms = QUIET_MS};
    struct fixture server;
    struct proxy proxy;
    struct agent agent = {0};
    struct rpc_client *client;
    uv_loop_t loop;
    char target[64];
    struct err e;

    (void)state;
    fixture_start(&server, &options);
    proxy_start(&proxy, server.port);
    snprintf(target, sizeof(target), "127.0.0.1:%d", proxy.port);
    uv_loop_init(&loop);
    assert_int_equal(rpc_client_open(&client, &loop, target, &quiet, &e), ERR_OK);
    agent.session = rpc_session_start(client, &ddp__v1__agent__descriptor, "Session", 0, &events, &agent);
    beat_send(&agent);
    while (!agent.ended)
        uv_run(&loop, UV_RUN_ONCE);
    rpc_client_close(client, on_closed, &agent);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(agent.closed);
    assert_int_equal(uv_loop_close(&loop), 0);
    pthread_join(proxy.thread, NULL);
    close_fd(&proxy.listener);
    fixture_stop(&server);

    assert_int_equal(agent.acks, BEATS);
    assert_true(proxy.up.frames[FRAME_DATA] >= BEATS && proxy.down.frames[FRAME_DATA] >= BEATS);
    assert_int_equal(proxy.up.frames[FRAME_PING], 0);
    assert_int_equal(proxy.down.frames[FRAME_PING], 0);
    /* A heartbeat that comes before the server asks for it is delivered in the phase before the request, and the acknowledgement
     * is sent after it. The next heartbeat is then asked for before it comes. So at least every second update is joined. */
    assert_in_range(proxy.down.joined, BEATS / 2 - 1, BEATS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_heartbeat_takes_few_frames),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
