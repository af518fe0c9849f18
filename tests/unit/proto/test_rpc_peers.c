#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "fixture.h"

/* Peers that are other processes: this program itself, run as "serve ADDRESS" or "watch TARGET". They are
 * killed, stopped and replaced, and the other side must notice. */

#define CLUSTER &ddp__v1__cluster__descriptor
#define KEEPALIVE_MS (500 * test_slow())

extern char **environ;
typedef Ddp__V1__JobStatus job_status;

struct peer {
    pid_t pid;
    FILE *out;
};

static void peer_start(struct peer *peer, const char *what, const char *where)
{
    char *argv[] = {(char *)"/proc/self/exe", (char *)what, (char *)where, NULL};
    posix_spawn_file_actions_t actions;
    int pipe_fds[2];

    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
    assert_int_equal(posix_spawn(&peer->pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_fds[1]);
    peer->out = fdopen(pipe_fds[0], "r");
    assert_non_null(peer->out);
}

static int peer_port(struct peer *peer)
{
    int port = 0;

    assert_int_equal(fscanf(peer->out, "port %d", &port), 1);
    return port;
}

/* Chooses an address on which a second server can listen after the first. Its port is outside the kernel's
 * ephemeral range, so no other connection gets it meanwhile, and outside the ranges of the cluster tests. */
static void fixed_address(char target[64])
{
    static int tried;

    for (int i = 0; i < 2500; i++) {
        int port = 29100 + (getpid() * 7 + tried++) % 2500, on = 1;
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        assert_true(fd >= 0);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        bool free_now = bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
        close(fd);
        if (free_now) {
            snprintf(target, 64, "127.0.0.1:%d", port);
            return;
        }
    }
    fail_msg("no free port from 29100 to 31599");
}

static int peer_end(struct peer *peer, int signal)
{
    int status;

    if (signal)
        kill(peer->pid, signal);
    assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
    fclose(peer->out);
    return status;
}

static struct rpc_channel *open_channel(const char *target)
{
    struct rpc_channel_options options = {.keepalive_ms = KEEPALIVE_MS, .keepalive_timeout_ms = KEEPALIVE_MS};
    struct rpc_channel *channel;
    struct err e;

    assert_int_equal(rpc_channel_open(&channel, target, &options, &e), ERR_OK);
    return channel;
}

static enum err_code get_job(struct rpc_channel *channel, int64_t job, unsigned flags, struct err *e)
{
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
    job_status *status;
    enum err_code code;

    request.job = job;
    code = rpc_channel_call(channel, CLUSTER, "GetJob", &request, (void **)&status, 20000 * test_slow(),
                            flags, e);
    if (code == ERR_OK)
        rpc_free(status);
    return code;
}

static struct rpc_stream *watch_open(struct rpc_channel *channel)
{
    Ddp__V1__WatchJobRequest request = DDP__V1__WATCH_JOB_REQUEST__INIT;
    struct rpc_stream *stream;
    void *message;
    struct err e;

    request.job = -2;
    assert_int_equal(rpc_stream_open(&stream, channel, CLUSTER, "WatchJob", &request, 0, 0, &e), ERR_OK);
    assert_int_equal(rpc_stream_next(stream, -1, &message, &e), ERR_OK);
    rpc_free(message);
    return stream;
}

static void a_client_notices_a_killed_server_and_finds_its_successor(void **state)
{
    struct peer peer;
    struct rpc_channel *channel;
    struct rpc_stream *stream;
    char target[64];
    void *message;
    struct err e;

    (void)state;
    fixed_address(target);
    peer_start(&peer, "serve", target);
    peer_port(&peer);
    channel = open_channel(target);
    stream = watch_open(channel);
    peer_end(&peer, SIGKILL);
    assert_int_equal(rpc_stream_next(stream, -1, &message, &e), ERR_UNAVAILABLE);
    rpc_stream_close(stream);
    assert_int_equal(get_job(channel, 1, 0, &e), ERR_UNAVAILABLE);
    peer_start(&peer, "serve", target);
    assert_int_equal(get_job(channel, 1, RPC_IDEMPOTENT, &e), ERR_OK);
    peer_port(&peer);
    assert_int_equal(peer_end(&peer, SIGTERM), 0);
    rpc_channel_close(channel);
}

static void a_call_waits_until_a_server_starts(void **state)
{
    struct peer peer;
    struct rpc_channel *channel;
    char target[64];
    struct err e;

    (void)state;
    fixed_address(target);
    channel = open_channel(target);
    peer_start(&peer, "serve", target);
    assert_int_equal(get_job(channel, 1, RPC_WAIT_FOR_READY, &e), ERR_OK);
    assert_int_equal(peer_end(&peer, SIGTERM), 0);
    rpc_channel_close(channel);
}

static void a_client_gives_up_a_stopped_server(void **state)
{
    struct peer peer;
    struct rpc_channel *channel;
    struct rpc_stream *stream;
    char target[64];
    void *message;
    struct err e;

    (void)state;
    fixed_address(target);
    peer_start(&peer, "serve", target);
    peer_port(&peer);
    channel = open_channel(target);
    stream = watch_open(channel);
    kill(peer.pid, SIGSTOP);
    assert_int_equal(rpc_stream_next(stream, 20000 * test_slow(), &message, &e), ERR_UNAVAILABLE);
    assert_true(rpc_stream_ended(stream));
    rpc_stream_close(stream);
    kill(peer.pid, SIGCONT);
    assert_int_equal(get_job(channel, 1, RPC_IDEMPOTENT, &e), ERR_OK);
    assert_int_equal(peer_end(&peer, SIGTERM), 0);
    rpc_channel_close(channel);
}

/* Ends a client with the signal: the server must call the handler's on_end with a cancelled call. */
static void client_lost(const char *target, struct fixture *server, int signal)
{
    struct peer peer;
    char line[16];
    int before = atomic_load(&server->cancelled);

    peer_start(&peer, "watch", target);
    assert_non_null(fgets(line, sizeof(line), peer.out));
    kill(peer.pid, signal);
    WAIT_FOR(atomic_load(&server->cancelled) == before + 1);
    peer_end(&peer, SIGKILL);
}

static void a_server_notices_lost_clients(void **state)
{
    char *dir = fixture_dir();
    CLEANUP(free_text) char *path = xasprintf("%s/socket", dir);
    CLEANUP(free_text) char *target = xasprintf("unix:%s", path);
    struct fixture_options options = {.tcp = "127.0.0.1:0",
                                      .unix_path = path,
                                      .keepalive_ms = KEEPALIVE_MS,
                                      .keepalive_timeout_ms = KEEPALIVE_MS};
    struct fixture server;

    (void)state;
    fixture_start(&server, &options);
    client_lost(server.target, &server, SIGKILL);
    client_lost(server.target, &server, SIGSTOP);
    client_lost(target, &server, SIGKILL);
    client_lost(target, &server, SIGSTOP);
    fixture_stop(&server);
    fixture_dir_remove(dir);
}

static void a_draining_server_exits_with_0(void **state)
{
    struct peer peer;
    struct rpc_channel *channel;
    struct rpc_stream *stream;
    char target[64];
    void *message;
    struct err e;

    (void)state;
    fixed_address(target);
    peer_start(&peer, "serve", target);
    peer_port(&peer);
    channel = open_channel(target);
    stream = watch_open(channel);
    kill(peer.pid, SIGTERM);
    assert_int_equal(rpc_stream_next(stream, -1, &message, &e), ERR_UNAVAILABLE);
    assert_string_equal(e.msg, "draining");
    assert_int_equal(peer_end(&peer, 0), 0);
    rpc_stream_close(stream);
    rpc_channel_close(channel);
}

/* A server restarts under load: no acknowledged call is lost, and no idempotent call fails. */
static void calls_survive_restarts(void **state)
{
    struct peer peer;
    struct rpc_channel *channel;
    char target[64];
    struct err e;

    (void)state;
    fixed_address(target);
    peer_start(&peer, "serve", target);
    peer_port(&peer);
    channel = open_channel(target);
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 50; k++)
            assert_int_equal(get_job(channel, 1, RPC_IDEMPOTENT, &e), ERR_OK);
        peer_end(&peer, i % 2 ? SIGKILL : SIGTERM);
        peer_start(&peer, "serve", target);
    }
    assert_int_equal(get_job(channel, 1, RPC_IDEMPOTENT, &e), ERR_OK);
    peer_end(&peer, SIGKILL);
    rpc_channel_close(channel);
}

static int watch_main(const char *target)
{
    struct rpc_channel *channel = open_channel(target);
    struct rpc_stream *stream = watch_open(channel);
    void *message;
    struct err e;

    printf("watching\n");
    fflush(stdout);
    return rpc_stream_next(stream, -1, &message, &e) == ERR_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_notices_a_killed_server_and_finds_its_successor),
        cmocka_unit_test(a_call_waits_until_a_server_starts),
        cmocka_unit_test(a_client_gives_up_a_stopped_server),
        cmocka_unit_test(a_server_notices_lost_clients),
        cmocka_unit_test(a_draining_server_exits_with_0),
        cmocka_unit_test(calls_survive_restarts),
    };

    if (argc == 3)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return fixture_main(&(struct fixture_options){.tcp = argv[2]});
    if (argc == 3)
        return watch_main(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
