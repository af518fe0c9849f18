#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include <signal.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/unit/proto/fixture.h"

/* Our side of the conversations with a python3-grpcio peer:
 *   interop_peer serve HOST:PORT [SOCKET [CA CERT KEY]]   the test server of tests/unit/proto
 *   interop_peer call TARGET                              calls the server of tests/interop/bridge and prints
 *                                                         one line for each finding */

#define CLUSTER &ddp__v1__cluster__descriptor

static int test_server_run(int argc, char **argv)
{
    struct rpc_tls_files tls = {0};
    struct fixture_options options = {
        .tcp = argv[2], .unix_path = argc > 3 ? argv[3] : NULL, .max_receive = 1 << 20};

    if (argc == 7) {
        tls = (struct rpc_tls_files){argv[4], argv[5], argv[6]};
        options.tls = &tls;
    }
    return fixture_main(&options);
}

static void print_result(const char *what, const struct err *e, const char *value)
{
    printf("%s %s %s\n", what, err_code_name(e->code), e->code ? e->msg : value);
}

static void call_unary(struct rpc_channel *channel, int64_t job, int64_t timeout_ms)
{
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
    Ddp__V1__JobStatus *status = NULL;
    struct err e = {0};

    request.job = job;
    if (rpc_channel_call(channel, CLUSTER, "GetJob", &request, (void **)&status, timeout_ms, 0, &e) == ERR_OK)
        e.code = ERR_OK;
    print_result("unary", &e, status ? status->name : "");
    rpc_free(status);
}

static void call_stream(struct rpc_channel *channel, int64_t job)
{
    Ddp__V1__WatchJobRequest request = DDP__V1__WATCH_JOB_REQUEST__INIT;
    CLEANUP(free_text) char *text = NULL;
    struct rpc_stream *stream;
    Ddp__V1__JobStatus *status;
    struct err e = {0};
    long count = 0, sum = 0;

    request.job = job;
    if (rpc_stream_open(&stream, channel, CLUSTER, "WatchJob", &request, 20000, 0, &e))
        exit(1);
    while (rpc_stream_next(stream, -1, (void **)&status, &e) == ERR_OK && status) {
        count++;
        sum += (long)status->job;
        rpc_free(status);
    }
    text = xasprintf("%ld %ld", count, sum);
    print_result("stream", &e, text);
    rpc_stream_close(stream);
}

static void call_both_ways(struct rpc_channel *channel, int64_t count)
{
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    Ddp__V1__Heartbeat heartbeat = DDP__V1__HEARTBEAT__INIT;
    struct rpc_stream *stream;
    Ddp__V1__AgentDown *down;
    struct err e = {0};
    int64_t i;

    up.body_case = DDP__V1__AGENT_UP__BODY_HEARTBEAT;
    up.heartbeat = &heartbeat;
    if (rpc_stream_open(&stream, channel, &ddp__v1__agent__descriptor, "Session", NULL, 20000, 0, &e))
        exit(1);
    for (i = 1; i <= count; i++) {
        heartbeat.sequence = i;
        if (rpc_stream_send(stream, &up, &e) || rpc_stream_next(stream, -1, (void **)&down, &e) || !down ||
            down->ack->sequence != i)
            exit(1);
        rpc_free(down);
    }
    if (rpc_stream_close_send(stream, &e) || rpc_stream_next(stream, -1, (void **)&down, &e) || down)
        exit(1);
    printf("both OK %lld\n", (long long)(i - 1));
    rpc_stream_close(stream);
}

static int test_server_call(const char *target)
{
    struct rpc_channel_options options = {.token = "secret"};
    struct rpc_channel *channel;
    struct err e;

    if (rpc_channel_open(&channel, target, &options, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    call_unary(channel, 1, 20000);
    call_unary(channel, 2, 20000);
    call_unary(channel, 3, 200);
    call_stream(channel, 500);
    call_stream(channel, -3);
    call_both_ways(channel, 200);
    rpc_channel_close(channel);
    return 0;
}

int main(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc >= 3 && strcmp(argv[1], "serve") == 0)
        return test_server_run(argc, argv);
    if (argc == 3 && strcmp(argv[1], "call") == 0)
        return test_server_call(argv[2]);
    fprintf(stderr, "usage: interop_peer serve HOST:PORT [SOCKET [CA CERT KEY]] | call TARGET\n");
    return 2;
}
