#include "fixture.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

typedef Ddp__V1__JobStatus job_status;

/* ---- unary calls ---- */

static void late_closed(uv_handle_t *handle)
{
    free(handle);
}

static void late_reply(uv_timer_t *timer)
{
    struct rpc_call *call = timer->data;
    job_status status = DDP__V1__JOB_STATUS__INIT;

    rpc_call_reply(call, &status);
    rpc_call_unref(call);
    uv_close((uv_handle_t *)timer, late_closed);
}

static void reply_later(struct fixture *f, struct rpc_call *call)
{
    uv_timer_t *timer = xcalloc(1, sizeof(*timer));

    uv_timer_init(&f->loop, timer);
    timer->data = rpc_call_ref(call);
    uv_timer_start(timer, late_reply, 20, 0);
}

static void get_job(struct rpc_call *call, const void *request, void *user)
{
    static const char *const kinds[] = {"unix", "tcp", "tls"};
    const Ddp__V1__GetJobRequest *wanted = request;
    const struct rpc_peer *peer = rpc_call_peer(call);
    struct fixture *f = user;
    job_status status = DDP__V1__JOB_STATUS__INIT;

    atomic_fetch_add(&f->started, 1);
    status.job = wanted->job;
    status.name = (char *)kinds[peer->kind];
    status.created_ms = rpc_call_remaining_ms(call);
    status.user = rpc_call_identity(call) ? rpc_call_identity(call) : (char *)peer->name;
    if (wanted->job == 2)
        rpc_call_fail_with(call, ERR_NOT_FOUND, "line\n100%%");
    else if (wanted->job == 4)
        reply_later(f, call);
    else if (wanted->job == 5)
        status.reason = (char *)"\xff\xfe";
    else if (wanted->job == 8 && atomic_fetch_add(&f->attempts, 1) < 2)
        rpc_call_fail_with(call, ERR_UNAVAILABLE, "not yet");
    if (wanted->job != 3 && wanted->job != 4)
        rpc_call_reply(call, &status);
}

static void call_end(struct rpc_call *call, bool cancelled)
{
    struct fixture *f = rpc_call_service_user(call);

    if (cancelled)
        atomic_fetch_add(&f->cancelled, 1);
    atomic_fetch_add(&f->ended, 1);
}

/* ---- server streams ---- */

static void watch_fill(struct rpc_call *call)
{
    struct fixture *f = rpc_call_service_user(call);
    job_status status = DDP__V1__JOB_STATUS__INIT;
    char text[1001];
    struct err e;

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    status.job_file = text;
    while (rpc_call_send(call, &status, &e) == ERR_OK)
        atomic_fetch_add(&f->sent, 1);
}

static void watch_job(struct rpc_call *call, const void *request, void *user)
{
    const Ddp__V1__WatchJobRequest *wanted = request;
    struct fixture *f = user;
    int64_t count = wanted->job >= 0 ? wanted->job : wanted->job == -3 ? 2 : 1;

    atomic_fetch_add(&f->started, 1);
    if (wanted->job == -1) {
        watch_fill(call);
        return;
    }
    for (int64_t i = 1; i <= count; i++) {
        job_status status = DDP__V1__JOB_STATUS__INIT;
        struct err e;

        status.job = i;
        if (rpc_call_send(call, &status, &e)) {
            rpc_call_fail(call, &e);
            return;
        }
    }
    if (wanted->job == -3)
        rpc_call_fail_with(call, ERR_ABORTED, "generation 4 is current");
    else if (wanted->job >= 0)
        rpc_call_finish(call);
}

static const struct rpc_method cluster_methods[] = {
    {.name = "GetJob", .kind = RPC_UNARY, .on_start = get_job, .on_end = call_end},
    {.name = "WatchJob",
     .kind = RPC_SERVER_STREAM,
     .on_start = watch_job,
     .on_sendable = watch_fill,
     .on_end = call_end},
    {0},
};

/* ---- sessions ---- */

static void session_start(struct rpc_call *call, const void *request, void *user)
{
    struct fixture *f = user;

    (void)call;
    assert_null(request);
    atomic_fetch_add(&f->started, 1);
}

static void beat_acknowledge(struct fixture *f, struct rpc_call *call, int64_t sequence)
{
    Ddp__V1__AgentDown down = DDP__V1__AGENT_DOWN__INIT;
    Ddp__V1__HeartbeatAck ack = DDP__V1__HEARTBEAT_ACK__INIT;
    struct err e;

    ack.sequence = sequence;
    ack.heartbeat_ms = f->options.ack_ms;
    down.body_case = DDP__V1__AGENT_DOWN__BODY_ACK;
    down.ack = &ack;
    if (rpc_call_send(call, &down, &e))
        rpc_call_fail(call, &e);
}

static void turn_ends(uv_check_t *turn)
{
    struct fixture *f = turn->data;

    uv_check_stop(turn);
    beat_acknowledge(f, f->late_call, f->late_sequence);
    rpc_call_unref(f->late_call);
}

static void beat_acknowledge_later(struct fixture *f, struct rpc_call *call, int64_t sequence)
{
    BUG_ON(uv_is_active((uv_handle_t *)&f->turn));
    f->late_call = rpc_call_ref(call);
    f->late_sequence = sequence;
    uv_check_start(&f->turn, turn_ends);
}

static void session_message(struct rpc_call *call, const void *message)
{
    const Ddp__V1__AgentUp *up = message;
    Ddp__V1__AgentDown down = DDP__V1__AGENT_DOWN__INIT;
    Ddp__V1__Welcome welcome = DDP__V1__WELCOME__INIT;
    Ddp__V1__Wish wish = DDP__V1__WISH__INIT;
    struct fixture *f = rpc_call_service_user(call);
    struct err e;

    if (!up) {
        rpc_call_finish(call);
        return;
    }
    if (up->body_case == DDP__V1__AGENT_UP__BODY_HEARTBEAT) {
        (f->options.late ? beat_acknowledge_later : beat_acknowledge)(f, call, up->heartbeat->sequence);
        return;
    }
    if (up->body_case == DDP__V1__AGENT_UP__BODY_HELLO) {
        welcome.cluster_id = up->hello->node;
        welcome.heartbeat_ms = f->options.welcome_ms;
        down.body_case = DDP__V1__AGENT_DOWN__BODY_WELCOME;
        down.welcome = &welcome;
    } else if (up->body_case == DDP__V1__AGENT_UP__BODY_ACTIVITY) {
        f->options.ack_ms = 0; /* the wish has workers, so the next heartbeats come at the usual interval */
        down.body_case = DDP__V1__AGENT_DOWN__BODY_WISH;
        down.wish = &wish;
    } else {
        rpc_call_fail_with(call, ERR_FAILED_PRECONDITION, "goodbye");
        return;
    }
    if (rpc_call_send(call, &down, &e))
        rpc_call_fail(call, &e);
}

static const struct rpc_method agent_methods[] = {
    {.name = "Session",
     .kind = RPC_BIDI,
     .on_start = session_start,
     .on_message = session_message,
     .on_end = call_end},
    {0},
};

/* ---- start, drain and stop ---- */

static void on_drained(void *user)
{
    struct fixture *f = user;

    rpc_server_free(f->server);
    atomic_store(&f->drained, true);
    uv_close((uv_handle_t *)&f->stop, NULL);
    uv_close((uv_handle_t *)&f->turn, NULL);
}

static void on_stop(uv_async_t *stop)
{
    struct fixture *f = stop->data;

    rpc_server_drain(f->server, f->options.grace_ms ? f->options.grace_ms : 5000, on_drained, f);
}

static void *serve_loop(void *user)
{
    struct fixture *f = user;

    uv_run(&f->loop, UV_RUN_DEFAULT);
    return NULL;
}

static void fixture_setup(struct fixture *f, const struct fixture_options *options)
{
    struct rpc_server_options o = {
        .loop = &f->loop,
        .auth = options->auth,
        .auth_user = f,
        .max_receive = options->max_receive,
        .send_queue = options->send_queue,
        .keepalive_ms = options->keepalive_ms,
        .keepalive_timeout_ms = options->keepalive_timeout_ms,
    };
    static bool logging;
    struct err e = {0};

    if (!logging) /* once, because gRPC's threads of an earlier fixture may be logging */
        log_init("test", LOG_ERROR);
    logging = true;
    memset(f, 0, sizeof(*f));
    f->options = *options;
    uv_loop_init(&f->loop);
    uv_async_init(&f->loop, &f->stop, on_stop);
    uv_check_init(&f->loop, &f->turn);
    f->stop.data = f->turn.data = f;
    if (rpc_server_create(&f->server, &o, &e))
        fail_msg("%s", e.msg);
    f->services[0] = (struct rpc_service){&ddp__v1__cluster__descriptor, cluster_methods, f};
    f->services[1] = (struct rpc_service){&ddp__v1__agent__descriptor, agent_methods, f};
    rpc_server_add_service(f->server, &f->services[0]);
    rpc_server_add_service(f->server, &f->services[1]);
    if (options->unix_path && rpc_server_listen_unix(f->server, options->unix_path, &e))
        fail_msg("%s", e.msg);
    if (options->tcp && rpc_server_listen_tcp(f->server, options->tcp, options->tls, &f->port, &e))
        fail_msg("%s", e.msg);
    snprintf(f->target, sizeof(f->target), "127.0.0.1:%d", f->port);
    rpc_server_start(f->server);
}

void fixture_start(struct fixture *f, const struct fixture_options *options)
{
    fixture_setup(f, options);
    assert_int_equal(pthread_create(&f->thread, NULL, serve_loop, f), 0);
}

void fixture_drain(struct fixture *f)
{
    uv_async_send(&f->stop);
}

void fixture_stop(struct fixture *f)
{
    if (!atomic_load(&f->drained))
        uv_async_send(&f->stop);
    pthread_join(f->thread, NULL);
    assert_true(f->drained);
    assert_int_equal(uv_loop_close(&f->loop), 0);
}

/* A thread waits for the signal, because a signal handler would come too late under ThreadSanitizer: it
 * delays a handler until the thread's next call of a function that it intercepts, and libuv's loop may sleep
 * before. */
static void *drain_at_signal(void *user)
{
    sigset_t stop;
    int number;

    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    BUG_ON(sigwait(&stop, &number));
    fixture_drain(user);
    return NULL;
}

int fixture_main(const struct fixture_options *options)
{
    static struct fixture f;
    sigset_t stop;

    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &stop, NULL); /* later threads inherit it */
    fixture_setup(&f, options);
    BUG_ON(pthread_create(&f.thread, NULL, drain_at_signal, &f));
    printf("port %d\n", f.port);
    fflush(stdout);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    pthread_join(f.thread, NULL);
    return uv_loop_close(&f.loop) == 0 ? 0 : 1;
}

char *fixture_dir(void)
{
    char *dir = xstrdup("/tmp/ddp-proto-XXXXXX");

    assert_non_null(mkdtemp(dir));
    return dir;
}

void fixture_dir_remove(char *dir)
{
    struct err e;

    assert_int_equal(file_remove_tree(dir, &e), ERR_OK);
    free(dir);
}
