#include "tests/unit/trainer/member/link/fake_coordinator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <pthread.h>
#include <uv.h>

#include "base/file.h"
#include "base/mem.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_server.h"
#include "trainer/member/link/link.h"

struct fake_coordinator fake;
char fake_directory[] = "/tmp/ddp-report-XXXXXX";
char fake_target[80];
static char fake_socket[64];

#define MAX_WATCHERS 8

static struct {
    uv_loop_t loop;
    uv_async_t stop, send;
    pthread_t thread;
    struct rpc_server *server;
    /* The open Watch calls; owned by the loop. A worker that dials again may have its new stream served before the
     * stream that it cancelled, so the last one that started need not be the one that it reads. */
    struct rpc_call *watchers[MAX_WATCHERS];
} fake_server;

static void fake_answer_alone(const Ddp__V1__JoinRequest *q, Ddp__V1__JoinReply *reply,
                              Ddp__V1__StateOffer *source)
{
    reply->world_size = 1;
    reply->n_peers = 1;
    reply->loopback = true;
    reply->live = q->live_step > 0;
    reply->source_rank = reply->live ? 0 : -1;
    source->step = q->live_step;
    source->path = (char *)(uintptr_t) "";
}

static void fake_on_join(struct rpc_call *call, const void *request, void *user)
{
    const Ddp__V1__JoinRequest *q = request;
    Ddp__V1__JoinReply reply = DDP__V1__JOIN_REPLY__INIT;
    Ddp__V1__Peer peers[2] = {DDP__V1__PEER__INIT, DDP__V1__PEER__INIT}, *list[2] = {&peers[0], &peers[1]};
    Ddp__V1__StateOffer source = DDP__V1__STATE_OFFER__INIT;
    uint8_t key[32];
    const enum err_code refuse = (enum err_code)fake.refuse; /* a test may change it after the count */

    (void)user;
    atomic_fetch_add(&fake.joins, 1);
    if (refuse) {
        rpc_call_fail_with(call, refuse, "not you");
        return;
    }
    BUG_ON(q->job != 5);
    BUG_ON(q->generation != fake.generation);
    BUG_ON(q->spawn != 9);
    memcpy(fake.address, q->address.data, q->address.len);
    fake.address_size = q->address.len;
    fake.joined_stays = q->stays;
    fake.live_step = (int)q->live_step;
    snprintf(fake.said, sizeof(fake.said), "%s %s", q->version, q->computes);
    if (q->n_offers)
        snprintf(fake.offered, sizeof(fake.offered), "%s@%d", q->offers[0]->path, (int)q->offers[0]->step);
    if (q->n_unusable)
        snprintf(fake.unusable, sizeof(fake.unusable), "%s", q->unusable[q->n_unusable - 1]);
    reply.state = DDP__V1__JOIN_STATE__JOIN_PENDING;
    if (fake.pending > 0) {
        atomic_fetch_sub(&fake.pending, 1);
    } else if (!fake.bootstrap_size) {
        reply.state = DDP__V1__JOIN_STATE__JOIN_BOOTSTRAP;
        reply.world_size = 2;
    } else {
        memset(key, 7, sizeof(key));
        reply.state = DDP__V1__JOIN_STATE__JOIN_READY;
        reply.world_size = 2;
        reply.scratch_generation = 3;
        reply.n_peers = 2;
        reply.peers = list;
        peers[1].rank = peers[1].node_rank = 1;
        peers[0].node = peers[1].node = (char *)(uintptr_t) "box";
        peers[0].address = peers[1].address = q->address;
        reply.bootstrap = (ProtobufCBinaryData){fake.bootstrap_size, fake.bootstrap};
        reply.generation_key = (ProtobufCBinaryData){sizeof(key), key};
        reply.source_rank = 1;
        reply.revision = fake.revision;
        reply.job_file = (char *)(uintptr_t)(fake.revision ? "of Join" : "");
        source.step = 300;
        source.path = (char *)(uintptr_t) "/snap/300";
        reply.source = &source;
        if (fake.alone)
            fake_answer_alone(q, &reply, &source);
    }
    rpc_call_reply(call, &reply);
}

static void fake_on_put(struct rpc_call *call, const void *request, void *user)
{
    const Ddp__V1__PutBootstrapRequest *q = request;
    Ddp__V1__PutBootstrapReply reply = DDP__V1__PUT_BOOTSTRAP_REPLY__INIT;

    (void)user;
    memcpy(fake.bootstrap, q->bootstrap.data, q->bootstrap.len);
    fake.bootstrap_size = q->bootstrap.len;
    atomic_fetch_add(&fake.bootstraps, 1);
    rpc_call_reply(call, &reply);
}

static void fake_send_watch(struct rpc_call *call)
{
    Ddp__V1__WatchReply reply = DDP__V1__WATCH_REPLY__INIT;
    struct err e = {0};
    /* Read once: a test may change it now, and a worker that neither waits nor is a member ends. */
    const bool wait = fake.watch_wait;

    reply.wait = wait || fake.watch_member_waits;
    reply.rank = fake.watch_rank;
    reply.member = !wait && (fake.watch_next || fake.watch_generation <= fake.generation);
    reply.generation = fake.watch_generation;
    reply.stop = fake.watch_stop;
    reply.handover = fake.watch_handover;
    reply.counts_parts = !fake.old_parts;
    reply.revision = fake.revision;
    reply.job_file = (char *)(uintptr_t)(fake.revision != fake.told_revision ? "of Watch" : "");
    if (rpc_call_send(call, &reply, &e) != ERR_OK)
        BUG_ON(e.code != ERR_CANCELLED &&
               e.code != ERR_UNAVAILABLE); /* the worker has closed the stream; it will dial again */
}

static void fake_add_watcher(struct rpc_call *call)
{
    int free = 0;

    while (free < MAX_WATCHERS && fake_server.watchers[free])
        free++;
    BUG_ON(free == MAX_WATCHERS);
    fake_server.watchers[free] = call;
}

static void fake_on_watch(struct rpc_call *call, const void *request, void *user)
{
    const Ddp__V1__WatchRequest *q = request;

    (void)user;
    BUG_ON(q->generation > fake.generation);
    fake.watched_failure = (int)q->failed_step;
    fake.told_step = (int)q->revision_step;
    fake.told_revision = (int)q->revision;
    fake.watched_stays = q->stays;
    fake.watched_ready = (int)q->ready;
    fake.watched_gathered = (int)q->gathered;
    fake.watched_broken = q->group_broken;
    fake.watched_generation = (int)q->generation;
    atomic_fetch_add(&fake.watches, 1);
    if (q->generation == fake.refused_watch) {
        rpc_call_fail_with(call, ERR_FAILED_PRECONDITION, "it has not formed yet");
        return;
    }
    fake_add_watcher(call);
    if (!fake.mute_watches)
        fake_send_watch(call);
    if (fake.short_watches)
        rpc_call_finish(call);
}

static void fake_on_watch_end(struct rpc_call *call, bool cancelled)
{
    (void)cancelled;
    for (int i = 0; i < MAX_WATCHERS; i++)
        if (fake_server.watchers[i] == call)
            fake_server.watchers[i] = NULL;
}

static void fake_on_commit(struct rpc_call *call, const void *request, void *user)
{
    const Ddp__V1__CommitSnapshotRequest *q = request;
    Ddp__V1__CommitSnapshotReply reply = DDP__V1__COMMIT_SNAPSHOT_REPLY__INIT;
    const enum err_code refuse = (enum err_code)fake.refuse;

    (void)user;
    fake.committed_step = (int)q->step;
    atomic_compare_exchange_strong(&fake.first_committed_step, &(int){0}, (int)q->step);
    atomic_fetch_add(&fake.commits, 1);
    if (refuse) {
        rpc_call_fail_with(call, refuse, "stale");
        return;
    }
    if (q->parts && q->step == fake.failed_step) {
        rpc_call_fail_with(call, ERR_ABORTED, "a rank could not write its part");
        return;
    }
    snprintf(fake.digest, sizeof(fake.digest), "%s@%d", q->digest, (int)q->step);
    fake.parts = q->parts;
    reply.pending = fake.pending_commits > 0;
    if (reply.pending)
        atomic_fetch_sub(&fake.pending_commits, 1);
    rpc_call_reply(call, &reply);
}

static void fake_on_failure(struct rpc_call *call, const void *request, void *user)
{
    const Ddp__V1__ReportSnapshotFailureRequest *q = request;
    Ddp__V1__ReportSnapshotFailureReply reply = DDP__V1__REPORT_SNAPSHOT_FAILURE_REPLY__INIT;

    (void)user;
    snprintf(fake.failure, sizeof(fake.failure), "%d: %s", (int)q->step, q->why);
    fake.failed_step = (int)q->step;
    fake.failure_waits_ms = (int)q->waits_ms;
    if (fake.refuse)
        rpc_call_fail_with(call, (enum err_code)fake.refuse, "what is this?");
    else
        rpc_call_reply(call, &reply);
}

static enum err_code fake_check_token(struct rpc_call *call, const struct rpc_auth *auth, void *user,
                                      struct err *e)
{
    (void)call, (void)user;
    if (auth->token && auth->token_len == 6 && !memcmp(auth->token, "0aff42", 6))
        return ERR_OK;
    return err_set(e, ERR_UNAUTHENTICATED, "no such token");
}

static const struct rpc_method rendezvous_methods[] = {
    {.name = "Join", .kind = RPC_UNARY, .waits = true, .on_start = fake_on_join},
    {.name = "PutBootstrap", .kind = RPC_UNARY, .on_start = fake_on_put},
    {.name = "Watch", .kind = RPC_SERVER_STREAM, .on_start = fake_on_watch, .on_end = fake_on_watch_end},
    {.name = "CommitSnapshot", .kind = RPC_UNARY, .on_start = fake_on_commit},
    {.name = "ReportSnapshotFailure", .kind = RPC_UNARY, .on_start = fake_on_failure},
    {.name = NULL},
};

static void fake_on_drained(void *user)
{
    (void)user;
    rpc_server_free(fake_server.server);
    uv_close((uv_handle_t *)&fake_server.stop, NULL);
    uv_close((uv_handle_t *)&fake_server.send, NULL);
}

static void fake_on_stop(uv_async_t *async)
{
    (void)async;
    rpc_server_drain(fake_server.server, 0, fake_on_drained, NULL);
}

static void fake_on_send(uv_async_t *async)
{
    (void)async;
    for (int i = 0; i < MAX_WATCHERS; i++)
        if (fake_server.watchers[i])
            fake_send_watch(fake_server.watchers[i]);
}

static void *fake_run_loop(void *arg)
{
    (void)arg;
    uv_run(&fake_server.loop, UV_RUN_DEFAULT);
    return NULL;
}

void fake_coordinator_open(void)
{
    static struct rpc_service service;
    struct rpc_server_options options = {.loop = &fake_server.loop, .auth = fake_check_token};
    struct err e = {0};

    service = (struct rpc_service){&ddp__v1__rendezvous__descriptor, rendezvous_methods, NULL};
    assert_int_equal(uv_loop_init(&fake_server.loop), 0);
    uv_async_init(&fake_server.loop, &fake_server.stop, fake_on_stop);
    uv_async_init(&fake_server.loop, &fake_server.send, fake_on_send);
    assert_int_equal(rpc_server_create(&fake_server.server, &options, &e), ERR_OK);
    rpc_server_add_service(fake_server.server, &service);
    if (rpc_server_listen_unix(fake_server.server, fake_socket, &e))
        fail_msg("%s", e.msg);
    rpc_server_start(fake_server.server);
    assert_int_equal(pthread_create(&fake_server.thread, NULL, fake_run_loop, NULL), 0);
}

void fake_coordinator_send_watch(void)
{
    uv_async_send(&fake_server.send);
}

void fake_coordinator_close(void)
{
    uv_async_send(&fake_server.stop);
    pthread_join(fake_server.thread, NULL);
    assert_int_equal(uv_loop_close(&fake_server.loop), 0);
}

int fake_coordinator_make_directory(void **state)
{
    (void)state;
    if (!mkdtemp(fake_directory))
        return -1;
    snprintf(fake_socket, sizeof(fake_socket), "%s/run/socket", fake_directory);
    snprintf(fake_target, sizeof(fake_target), "unix:%s", fake_socket);
    return 0;
}

int fake_coordinator_remove_directory(void **state)
{
    struct err e = {0};

    (void)state;
    if (file_remove_tree(fake_directory, &e))
        fprintf(stderr, "%s\n", e.msg);
    return 0;
}

int fake_coordinator_reset(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof(fake));
    memset(&fake_server, 0, sizeof(fake_server));
    fake.watch_generation = fake.generation = 4;
    setenv("DDP_COORDINATOR", fake_target, 1);
    setenv("DDP_JOB_ID", "5", 1);
    setenv("DDP_GENERATION", "4", 1);
    setenv("DDP_SPAWN", "9", 1);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCAL_RANK", "0", 1);
    setenv("GROUP_RANK", "0", 1);
    unsetenv("DDP_REPORT_FD");
    unsetenv("DDP_TOKEN_FD");
    return 0;
}

void worker_give_token(const char *bytes, size_t size)
{
    char text[16];
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], bytes, size), size);
    close(ends[1]);
    snprintf(text, sizeof(text), "%d", ends[0]);
    setenv("DDP_TOKEN_FD", text, 1);
}

struct link *worker_link_open(void)
{
    struct link *link;
    struct err e = {0};

    worker_give_token("\x0a\xff\x42", 3);
    if (link_open(&link, false, &e))
        fail_msg("%s", e.msg);
    return link;
}
