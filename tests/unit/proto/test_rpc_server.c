#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "fixture.h"

#define CLUSTER &ddp__v1__cluster__descriptor

typedef Ddp__V1__JobStatus job_status;

static enum err_code call_job(struct rpc_channel *channel, int64_t job, int64_t timeout_ms, job_status **out,
                              struct err *e)
{
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;

    request.job = job;
    return rpc_channel_call(channel, CLUSTER, "GetJob", &request, (void **)out, timeout_ms, 0, e);
}

/* Makes one call on a new channel. Checks the reply's user and name unless they are NULL. */
static enum err_code call_once(const char *target, const char *token, const char *user, const char *name)
{
    struct rpc_channel_options options = {.token = token};
    struct rpc_channel *channel;
    job_status *status;
    enum err_code code;
    struct err e;

    assert_int_equal(rpc_channel_open(&channel, target, &options, &e), ERR_OK);
    code = call_job(channel, 1, 20000, &status, &e);
    if (code == ERR_OK) {
        if (user)
            assert_string_equal(status->user, user);
        if (name)
            assert_string_equal(status->name, name);
        rpc_free(status);
    }
    rpc_channel_close(channel);
    return code;
}

/* ---- authentication ---- */

static atomic_int asked;

static enum err_code caller_authenticate(struct rpc_call *call, const struct rpc_auth *a, void *user,
                                         struct err *e)
{
    (void)user;
    atomic_fetch_add(&asked, 1);
    assert_string_equal(a->service, "ddp.v1.Cluster");
    if (a->peer->kind == RPC_PEER_UNIX) {
        assert_int_equal(a->peer->uid, geteuid());
        assert_int_equal(a->peer->pid, getpid());
    } else if (!a->token) {
        return err_set(e, ERR_UNAUTHENTICATED, "no token");
    } else if (a->token_len != 6 || memcmp(a->token, "secret", 6) != 0) {
        return err_set(e, ERR_UNAUTHENTICATED, "wrong token");
    }
    rpc_call_set_identity(call, xstrdup(a->method), free);
    return ERR_OK;
}

static void the_auth_function_decides(void **state)
{
    char *dir = fixture_dir();
    CLEANUP(free_text) char *path = xasprintf("%s/s/socket", dir);
    CLEANUP(free_text) char *target = xasprintf("unix:%s", path);
    struct fixture_options options = {.tcp = "127.0.0.1:0", .unix_path = path, .auth = caller_authenticate};
    struct fixture server;

    (void)state;
    fixture_start(&server, &options);
    assert_int_equal(call_once(server.target, NULL, NULL, NULL), ERR_UNAUTHENTICATED);
    assert_int_equal(call_once(server.target, "secreT", NULL, NULL), ERR_UNAUTHENTICATED);
    assert_int_equal(call_once(server.target, "secret7", NULL, NULL), ERR_UNAUTHENTICATED);
    assert_int_equal(server.started, 0);
    assert_int_equal(call_once(server.target, "secret", "GetJob", "tcp"), ERR_OK);
    assert_int_equal(call_once(target, NULL, "GetJob", "unix"), ERR_OK);
    assert_int_equal(asked, 5);
    fixture_stop(&server);
    fixture_dir_remove(dir);
}

/* ---- unauthenticated connections ---- */

static enum err_code auth_by_token(struct rpc_call *call, const struct rpc_auth *a, void *user, struct err *e)
{
    static const struct {
        const char *token;
        enum err_code code;
    } rows[] = {{"known", ERR_OK}, {"small", ERR_PERMISSION_DENIED}, {"later", ERR_UNAVAILABLE}};

    (void)user;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (a->token_len == 5 && memcmp(a->token, rows[i].token, 5) == 0) {
            rpc_call_set_identity(call, xstrdup(a->method), free);
            return rows[i].code == ERR_OK ? ERR_OK : err_set(e, rows[i].code, "as the token says");
        }
    return err_set(e, ERR_UNAUTHENTICATED, "no token");
}

/* Admitted connections are never dropped. So a connection is admitted only after a call whose token is valid,
 * not after one that must be retried. */
static void a_call_that_must_be_retried_does_not_authenticate(void **state)
{
    static const struct {
        const char *token;
        enum err_code code;
        size_t unauthenticated;
    } rows[] = {{"known", ERR_OK, 0},
                {"small", ERR_PERMISSION_DENIED, 0},
                {"later", ERR_UNAVAILABLE, 1},
                {"wrong", ERR_UNAUTHENTICATED, 1}};
    struct fixture_options options = {.tcp = "127.0.0.1:0", .auth = auth_by_token};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct rpc_channel_options with = {.token = rows[i].token};
        struct rpc_traffic traffic;
        struct rpc_channel *channel;
        struct fixture server;
        job_status *status;
        struct err e;

        fixture_start(&server, &options);
        assert_int_equal(rpc_channel_open(&channel, server.target, &with, &e), ERR_OK);
        assert_int_equal(call_job(channel, 1, 20000, &status, &e), rows[i].code);
        rpc_server_traffic(server.server, &traffic);
        assert_int_equal(traffic.connections, 1);
        assert_int_equal(traffic.unauthenticated, rows[i].unauthenticated);
        if (rows[i].code == ERR_OK)
            rpc_free(status);
        rpc_channel_close(channel);
        fixture_stop(&server);
    }
}

static void an_ipv6_address_has_brackets(void **state)
{
    struct fixture_options options = {.tcp = "[::1]:0"};
    struct fixture server;
    char target[64];

    (void)state;
    fixture_start(&server, &options);
    snprintf(target, sizeof(target), "[::1]:%d", server.port);
    assert_int_equal(call_once(target, NULL, NULL, "tcp"), ERR_OK);
    fixture_stop(&server);
}

/* ---- listening ---- */

static struct rpc_server *bare_server(uv_loop_t *loop)
{
    struct rpc_server_options options = {.loop = loop};
    struct rpc_server *server;
    struct err e;

    assert_int_equal(rpc_server_create(&server, &options, &e), ERR_OK);
    return server;
}

static void a_port_in_use_is_refused(void **state)
{
    struct fixture_options options = {.tcp = "127.0.0.1:0"};
    struct fixture first;
    uv_loop_t loop;
    struct rpc_server *second;
    struct err e;

    (void)state;
    fixture_start(&first, &options);
    uv_loop_init(&loop);
    second = bare_server(&loop);
    assert_int_equal(rpc_server_listen_tcp(second, first.target, NULL, NULL, &e), ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "in use"));
    assert_int_equal(rpc_server_listen_tcp(second, "127.0.0.1", NULL, NULL, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(rpc_server_listen_tcp(second, "192.0.2.1:5", NULL, NULL, &e), ERR_INTERNAL);
    rpc_server_free(second);
    assert_int_equal(uv_loop_close(&loop), 0);
    fixture_stop(&first);
}

static void a_socket_in_use_is_refused_and_a_stale_one_replaced(void **state)
{
    char *dir = fixture_dir();
    CLEANUP(free_text) char *path = xasprintf("%s/socket", dir);
    CLEANUP(free_text) char *target = xasprintf("unix:%s", path);
    struct fixture_options options = {.unix_path = path};
    struct fixture first;
    uv_loop_t loop;
    struct rpc_server *second;
    struct stat st;
    struct err e;

    (void)state;
    assert_int_equal(file_write_atomic(path, "", 0, 0600, &e), ERR_OK); /* a file that a killed server left */
    fixture_start(&first, &options);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    uv_loop_init(&loop);
    second = bare_server(&loop);
    assert_int_equal(rpc_server_listen_unix(second, path, &e), ERR_FAILED_PRECONDITION);
    assert_int_equal(rpc_server_listen_unix(second, "relative", &e), ERR_INVALID_ARGUMENT);
    rpc_server_free(second);
    assert_int_equal(call_once(target, NULL, NULL, "unix"), ERR_OK); /* the first server still serves */
    fixture_stop(&first);
    assert_int_equal(stat(path, &st), -1);
    second = bare_server(&loop);
    assert_int_equal(rpc_server_listen_unix(second, path, &e), ERR_OK);
    rpc_server_free(second);
    assert_int_equal(uv_loop_close(&loop), 0);
    fixture_dir_remove(dir);
}

static void a_directory_that_others_may_enter_is_refused(void **state)
{
    char *dir = fixture_dir();
    CLEANUP(free_text) char *path = xasprintf("%s/socket", dir);
    uv_loop_t loop;
    struct rpc_server *server;
    struct err e;

    (void)state;
    assert_int_equal(chmod(dir, 0750), 0);
    uv_loop_init(&loop);
    server = bare_server(&loop);
    assert_int_equal(rpc_server_listen_unix(server, path, &e), ERR_FAILED_PRECONDITION);
    rpc_server_free(server);
    assert_int_equal(uv_loop_close(&loop), 0);
    fixture_dir_remove(dir);
}

/* ---- limits ---- */

static void an_oversized_request_fails_its_own_call_only(void **state)
{
    struct fixture_options options = {.tcp = "127.0.0.1:0", .max_receive = 10000};

    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    Ddp__V1__LogChunk chunk = DDP__V1__LOG_CHUNK__INIT;
    uint8_t *data = xcalloc(20000, 1);
    struct rpc_channel *channel;
    struct rpc_stream *stream;
    struct fixture server;
    job_status *status;
    void *message;
    struct err e;

    (void)state;

    fixture_start(&server, &options);
    assert_int_equal(rpc_channel_open(&channel, server.target, NULL, &e), ERR_OK);
    chunk.data.data = data;
    chunk.data.len = 20000;
    up.body_case = DDP__V1__AGENT_UP__BODY_LOG_CHUNK;
    up.log_chunk = &chunk;
    assert_int_equal(
        rpc_stream_open(&stream, channel, &ddp__v1__agent__descriptor, "Session", NULL, 0, 0, &e), ERR_OK);
    (void)!rpc_stream_send(stream, &up, &e);
    assert_int_equal(rpc_stream_next(stream, -1, &message, &e), ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(call_job(channel, 1, 20000, &status, &e), ERR_OK); /* on the same connection */
    rpc_free(status);
    rpc_stream_close(stream);
    rpc_channel_close(channel);
    fixture_stop(&server);
    free(data);
}

/* ---- draining ---- */

struct waiting {
    struct rpc_channel *channel;
    int64_t job;
    struct err e;
};

static void *wait_call(void *user)
{
    struct waiting *w = user;
    job_status *status;

    if (call_job(w->channel, w->job, 20000, &status, &w->e) == ERR_OK) {
        rpc_free(status);
        w->e.code = ERR_OK;
    }
    return NULL;
}

static void drain_ends_streams_and_waits_for_calls(void **state)
{
    struct fixture_options options = {.tcp = "127.0.0.1:0", .grace_ms = 300};
    Ddp__V1__WatchJobRequest request = DDP__V1__WATCH_JOB_REQUEST__INIT;
    struct waiting stuck = {.job = 3};
    struct rpc_stream *stream;
    struct fixture server;
    pthread_t thread;
    void *message;
    struct err e;

    (void)state;
    fixture_start(&server, &options);
    assert_int_equal(rpc_channel_open(&stuck.channel, server.target, NULL, &e), ERR_OK);
    request.job = -2;
    assert_int_equal(rpc_stream_open(&stream, stuck.channel, CLUSTER, "WatchJob", &request, 0, 0, &e),
                     ERR_OK);
    assert_int_equal(rpc_stream_next(stream, -1, &message, &e), ERR_OK);
    rpc_free(message);
    assert_int_equal(pthread_create(&thread, NULL, wait_call, &stuck), 0);
    WAIT_FOR(atomic_load(&server.started) == 2);
    fixture_drain(&server);
    assert_int_equal(rpc_stream_next(stream, -1, &message, &e), ERR_UNAVAILABLE);
    assert_string_equal(e.msg, "draining");
    pthread_join(thread, NULL);
    assert_int_equal(stuck.e.code, ERR_UNAVAILABLE); /* the grace time ended, no call was cancelled */
    fixture_stop(&server);
    assert_int_equal(server.ended, 2);
    assert_int_equal(call_once(server.target, NULL, NULL, NULL), ERR_UNAVAILABLE);
    rpc_stream_close(stream);
    rpc_channel_close(stuck.channel);
}

static void drain_lets_a_call_finish(void **state)
{
    struct fixture_options options = {.tcp = "127.0.0.1:0", .grace_ms = 15000};
    struct waiting late = {.job = 4};
    struct fixture server;
    pthread_t thread;
    struct err e;

    (void)state;
    fixture_start(&server, &options);
    assert_int_equal(rpc_channel_open(&late.channel, server.target, NULL, &e), ERR_OK);
    assert_int_equal(pthread_create(&thread, NULL, wait_call, &late), 0);
    WAIT_FOR(atomic_load(&server.started) == 1);
    fixture_stop(&server);
    pthread_join(thread, NULL);
    assert_int_equal(late.e.code, ERR_OK);
    rpc_channel_close(late.channel);
}

static void three_hundred_streams_drain(void **state)
{
    struct fixture_options options = {.tcp = "127.0.0.1:0"};
    Ddp__V1__WatchJobRequest request = DDP__V1__WATCH_JOB_REQUEST__INIT;
    struct rpc_stream *streams[300];
    struct rpc_channel *channel;
    struct fixture server;
    void *message;
    struct err e;

    (void)state;
    fixture_start(&server, &options);
    assert_int_equal(rpc_channel_open(&channel, server.target, NULL, &e), ERR_OK);
    request.job = -2;
    for (int i = 0; i < 300; i++)
        assert_int_equal(rpc_stream_open(&streams[i], channel, CLUSTER, "WatchJob", &request, 0, 0, &e),
                         ERR_OK);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(rpc_stream_next(streams[i], -1, &message, &e), ERR_OK);
        rpc_free(message);
    }
    fixture_drain(&server);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(rpc_stream_next(streams[i], -1, &message, &e), ERR_UNAVAILABLE);
        rpc_stream_close(streams[i]);
    }
    fixture_stop(&server);
    assert_int_equal(server.ended, 300);
    rpc_channel_close(channel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_auth_function_decides),
        cmocka_unit_test(a_call_that_must_be_retried_does_not_authenticate),
        cmocka_unit_test(an_ipv6_address_has_brackets),
        cmocka_unit_test(a_port_in_use_is_refused),
        cmocka_unit_test(a_socket_in_use_is_refused_and_a_stale_one_replaced),
        cmocka_unit_test(a_directory_that_others_may_enter_is_refused),
        cmocka_unit_test(an_oversized_request_fails_its_own_call_only),
        cmocka_unit_test(drain_ends_streams_and_waits_for_calls),
        cmocka_unit_test(drain_lets_a_call_finish),
        cmocka_unit_test(three_hundred_streams_drain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
