#ifndef DDP_TESTS_UNIT_PROTO_FIXTURE_H
#define DDP_TESTS_UNIT_PROTO_FIXTURE_H

#include <pthread.h>
#include <stdatomic.h>

#include <uv.h>

#include "proto/ddp.pb-c.h"
#include "proto/rpc_client.h"
#include "proto/rpc_server.h"
#include "tests/unit/base/check.h"

/* A server with a few methods of ddp.v1 that misbehave on request, on a loop in a thread of its own.
 *
 *   GetJob      job 1: replies, name = the peer's kind
 *               job 2: NOT_FOUND, "line\n100%"
 *               job 3: never answers
 *               job 4: answers after some turns of the loop
 *               job 5: a reply that is not UTF-8
 *               job 6: echoes the caller's identity in `user`
 *               job 7: remaining ms in created_ms
 *               job 8: UNAVAILABLE the first two times, then replies
 *   WatchJob    job N >= 0: N messages, job 1..N, then OK
 *               job -1: as many messages as the client takes
 *               job -2: one message, then the stream stays open
 *               job -3: ABORTED after two messages
 *   CancelJob   has no handler here: calls end with UNIMPLEMENTED
 *   Session     answers a heartbeat with an ack, a hello with a welcome, and an activity with a wish. A goodbye makes the
 *               stream fail, and a half close ends it */
struct fixture_options {
    const char *unix_path; /* unix_path, tcp or both are given */
    const char *tcp;       /* such as "127.0.0.1:0" */
    const struct rpc_tls_files *tls;
    rpc_auth_fn auth;
    size_t send_queue, max_receive;
    int64_t keepalive_ms, keepalive_timeout_ms, grace_ms;
    int welcome_ms, ack_ms; /* the intervals of heartbeats in welcomes and acknowledgements */
    bool
        late; /* acknowledgements are sent at the end of the loop's turn, as the coordinator does; one client */
};
struct fixture {
    uv_loop_t loop;
    uv_async_t stop;
    pthread_t thread;
    struct rpc_server *server;
    struct rpc_service services[2];
    struct fixture_options options;
    uv_check_t turn;
    struct rpc_call *late_call; /* to which an acknowledgement is due */
    int64_t late_sequence;
    int port;
    char target[64]; /* address of the TCP port */
    atomic_int started, ended, cancelled, attempts, sent;
    atomic_bool drained;
};
void fixture_start(struct fixture *f, const struct fixture_options *options);
void fixture_drain(struct fixture *f); /* begins to drain */
void fixture_stop(struct fixture *f);  /* drains and waits for the end */
/* Runs the server as a process: prints "port N" on stdout when it listens, and drains on SIGTERM. */
int fixture_main(const struct fixture_options *options);

/* Waits up to 20 s, times DDP_TEST_SLOW, for the condition. */
#define WAIT_FOR(cond)                                                                                       \
    do {                                                                                                     \
        int64_t until_ = clock_boot_ms() + 20000 * test_slow();                                              \
        while (!(cond) && clock_boot_ms() < until_)                                                          \
            sched_yield();                                                                                   \
        assert_true(cond);                                                                                   \
    } while (0)

char *fixture_dir(void); /* a new 0700 directory; fixture_dir_remove frees it */
void fixture_dir_remove(char *dir);

#endif
