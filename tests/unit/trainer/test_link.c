/* Tests a worker's connection to the coordinator against a stand-in ("desk"), which can be slow, close, come
 * back, or refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <uv.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_server.h"
#include "trainer/member/link/commit.h"
#include "trainer/member/link/join.h"
#include "trainer/member/link/watch.h"

#define WAIT_FOR(cond)                                                                                       \
    do {                                                                                                     \
        int64_t until_ = clock_boot_ms() + 20000;                                                            \
        while (!(cond) && clock_boot_ms() < until_)                                                          \
            sched_yield();                                                                                   \
        assert_true(cond);                                                                                   \
    } while (0)

/* ---- the desk */

static char directory[] = "/tmp/ddp-report-XXXXXX";
static char socket_path[64];

static struct desk {
    uv_loop_t loop;
    uv_async_t stop, say;
    pthread_t thread;
    struct rpc_server *server;
    struct rpc_call *watcher; /* owned by the loop */
    atomic_int joins, pending, bootstraps, watches, commits,
        refuse; /* refuse: a code for Join and CommitSnapshot */
    atomic_int say_generation, say_stop;
    uint8_t bootstrap[4096], address[64];
    atomic_size_t bootstrap_size, address_size;
    char offered[64], digest[80], failure[128], unusable[64];
    atomic_int generation;             /* the generation that this process is a member of */
    atomic_int refused_watch;          /* a Watch of this generation is refused: it has not formed yet */
    atomic_bool short_watches;         /* a Watch ends after its first message */
    atomic_int pending_commits, parts; /* commits to answer with "call again"; parts of the last one */
} desk;

static void on_join(struct rpc_call *call, const void *request, void *user)
{
    const Ddp__V1__JoinRequest *q = request;
    Ddp__V1__JoinReply reply = DDP__V1__JOIN_REPLY__INIT;
    Ddp__V1__Peer peers[2] = {DDP__V1__PEER__INIT, DDP__V1__PEER__INIT}, *list[2] = {&peers[0], &peers[1]};
    Ddp__V1__StateOffer source = DDP__V1__STATE_OFFER__INIT;
    uint8_t key[32];

    (void)user;
    atomic_fetch_add(&desk.joins, 1);
    if (desk.refuse) {
        rpc_call_fail_with(call, (enum err_code)desk.refuse, "not you");
        return;
    }
    BUG_ON(q->job != 5);
    BUG_ON(q->generation != desk.generation);
    BUG_ON(q->spawn != 9);
    memcpy(desk.address, q->address.data, q->address.len);
    desk.address_size = q->address.len;
    if (q->n_offers)
        snprintf(desk.offered, sizeof(desk.offered), "%s@%d", q->offers[0]->path, (int)q->offers[0]->step);
    if (q->n_unusable)
        snprintf(desk.unusable, sizeof(desk.unusable), "%s", q->unusable[q->n_unusable - 1]);
    reply.state = DDP__V1__JOIN_STATE__JOIN_PENDING;
    if (desk.pending > 0) {
        atomic_fetch_sub(&desk.pending, 1);
    } else if (!desk.bootstrap_size) {
        reply.state = DDP__V1__JOIN_STATE__JOIN_BOOTSTRAP;
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
        reply.bootstrap = (ProtobufCBinaryData){desk.bootstrap_size, desk.bootstrap};
        reply.generation_key = (ProtobufCBinaryData){sizeof(key), key};
        reply.source_rank = 1;
        source.step = 300;
        source.path = (char *)(uintptr_t) "/snap/300";
        reply.source = &source;
    }
    rpc_call_reply(call, &reply);
}

static void on_put(struct rpc_call *call, const void *request, void *user)
{
    const Ddp__V1__PutBootstrapRequest *q = request;
    Ddp__V1__PutBootstrapReply reply = DDP__V1__PUT_BOOTSTRAP_REPLY__INIT;

    (void)user;
    memcpy(desk.bootstrap, q->bootstrap.data, q->bootstrap.len);
    desk.bootstrap_size = q->bootstrap.len;
    atomic_fetch_add(&desk.bootstraps, 1);
    rpc_call_reply(call, &reply);
}

static void tell(struct rpc_call *call)
{
    Ddp__V1__WatchReply reply = DDP__V1__WATCH_REPLY__INIT;
    struct err e = {0};

    reply.member = desk.say_generation <= desk.generation;
    reply.generation = desk.say_generation;
    reply.stop = desk.say_stop;
    if (rpc_call_send(call, &reply, &e) != ERR_OK)
        BUG_ON(e.code != ERR_CANCELLED &&
               e.code != ERR_UNAVAILABLE); /* the worker has closed the stream; it will dial again */
}

static void on_watch(struct rpc_call *call, const void *request, void *user)
{
    const Ddp__V1__WatchRequest *q = request;

    (void)user;
    BUG_ON(q->generation > desk.generation);
    atomic_fetch_add(&desk.watches, 1);
    if (q->generation == desk.refused_watch) {
        rpc_call_fail_with(call, ERR_FAILED_PRECONDITION, "it has not formed yet");
        return;
    }
    desk.watcher = call;
    tell(call);
    if (desk.short_watches)
        rpc_call_finish(call);
}

static void on_watch_end(struct rpc_call *call, bool cancelled)
{
    (void)call, (void)cancelled;
    desk.watcher = NULL;
}

static void on_commit(struct rpc_call *call, const void *request, void *user)
{
    const Ddp__V1__CommitSnapshotRequest *q = request;
    Ddp__V1__CommitSnapshotReply reply = DDP__V1__COMMIT_SNAPSHOT_REPLY__INIT;

    (void)user;
    atomic_fetch_add(&desk.commits, 1);
    if (desk.refuse) {
        rpc_call_fail_with(call, (enum err_code)desk.refuse, "stale");
        return;
    }
    snprintf(desk.digest, sizeof(desk.digest), "%s@%d", q->digest, (int)q->step);
    desk.parts = q->parts;
    reply.pending = desk.pending_commits > 0;
    if (reply.pending)
        atomic_fetch_sub(&desk.pending_commits, 1);
    rpc_call_reply(call, &reply);
}

static void on_failure(struct rpc_call *call, const void *request, void *user)
{
    const Ddp__V1__ReportSnapshotFailureRequest *q = request;
    Ddp__V1__ReportSnapshotFailureReply reply = DDP__V1__REPORT_SNAPSHOT_FAILURE_REPLY__INIT;

    (void)user;
    snprintf(desk.failure, sizeof(desk.failure), "%d: %s", (int)q->step, q->why);
    if (desk.refuse)
        rpc_call_fail_with(call, (enum err_code)desk.refuse, "what is this?");
    else
        rpc_call_reply(call, &reply);
}

static enum err_code check_token(struct rpc_call *call, const struct rpc_auth *auth, void *user,
                                 struct err *e)
{
    (void)call, (void)user;
    if (auth->token && auth->token_len == 6 && !memcmp(auth->token, "0aff42", 6))
        return ERR_OK;
    return err_set(e, ERR_UNAUTHENTICATED, "no such token");
}

static const struct rpc_method methods[] = {
    {.name = "Join", .kind = RPC_UNARY, .waits = true, .on_start = on_join},
    {.name = "PutBootstrap", .kind = RPC_UNARY, .on_start = on_put},
    {.name = "Watch", .kind = RPC_SERVER_STREAM, .on_start = on_watch, .on_end = on_watch_end},
    {.name = "CommitSnapshot", .kind = RPC_UNARY, .on_start = on_commit},
    {.name = "ReportSnapshotFailure", .kind = RPC_UNARY, .on_start = on_failure},
    {.name = NULL},
};

static void on_drained(void *user)
{
    (void)user;
    rpc_server_free(desk.server);
    uv_close((uv_handle_t *)&desk.stop, NULL);
    uv_close((uv_handle_t *)&desk.say, NULL);
}

static void on_stop(uv_async_t *async)
{
    (void)async;
    rpc_server_drain(desk.server, 0, on_drained, NULL);
}

static void on_say(uv_async_t *async)
{
    (void)async;
    if (desk.watcher)
        tell(desk.watcher);
}

static void *serve(void *arg)
{
    (void)arg;
    uv_run(&desk.loop, UV_RUN_DEFAULT);
    return NULL;
}

static void desk_open(void)
{
    static struct rpc_service service;
    struct rpc_server_options options = {.loop = &desk.loop, .auth = check_token};
    struct err e = {0};

    service = (struct rpc_service){&ddp__v1__rendezvous__descriptor, methods, NULL};
    assert_int_equal(uv_loop_init(&desk.loop), 0);
    uv_async_init(&desk.loop, &desk.stop, on_stop);
    uv_async_init(&desk.loop, &desk.say, on_say);
    assert_int_equal(rpc_server_create(&desk.server, &options, &e), ERR_OK);
    rpc_server_add_service(desk.server, &service);
    if (rpc_server_listen_unix(desk.server, socket_path, &e))
        fail_msg("%s", e.msg);
    rpc_server_start(desk.server);
    assert_int_equal(pthread_create(&desk.thread, NULL, serve, NULL), 0);
}

static void desk_close(void)
{
    uv_async_send(&desk.stop);
    pthread_join(desk.thread, NULL);
    assert_int_equal(uv_loop_close(&desk.loop), 0);
}

/* ---- the worker's side */

static void set_token(const char *bytes, size_t size)
{
    char text[16];
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], bytes, size), size);
    close(ends[1]);
    snprintf(text, sizeof(text), "%d", ends[0]);
    setenv("DDP_TOKEN_FD", text, 1);
}

static struct link *worker(void)
{
    struct link *r;
    struct err e = {0};

    set_token("\x0a\xff\x42", 3);
    if (link_open(&r, false, &e))
        fail_msg("%s", e.msg);
    return r;
}

static const struct link_offer offer = {.job = 5, .step = 200, .path = "/snap/200", .digest = "ab"};
static char *const unusable[] = {(char *)"/snap/100: damaged", NULL};
static const struct link_join plain_join = {.address = (const uint8_t *)"here",
                                            .address_size = 4,
                                            .offers = &offer,
                                            .offer_count = 1,
                                            .unusable = unusable};

static int set_up(void **state)
{
    char target[80];

    (void)state;
    memset(&desk, 0, sizeof(desk));
    desk.say_generation = desk.generation = 4;
    snprintf(target, sizeof(target), "unix:%s", socket_path);
    setenv("DDP_COORDINATOR", target, 1);
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

/* ---- joining */

static void join_waits_brings_the_bootstrap_id_and_gets_the_group(void **state)
{
    struct link *r = worker();
    struct link_group g;
    struct err e = {0};

    (void)state;
    desk.pending = 2;
    desk_open();
    assert_int_equal(link_join(r, link_first_member(r), &plain_join, &g, &e), ERR_OK);
    assert_int_equal(desk.joins, 4); /* two pending, one bootstrap, one ready */
    assert_int_equal(desk.bootstraps, 1);
    assert_int_equal(g.bootstrap_size, 128);
    assert_int_equal(g.scratch_generation, 3);
    assert_string_equal(desk.unusable, "/snap/100: damaged");
    assert_memory_equal(g.bootstrap, desk.bootstrap, 128);
    assert_int_equal(g.world_size, 2);
    assert_int_equal(g.peers[1].node_rank, 1);
    assert_string_equal(g.peers[1].node, "box");
    assert_memory_equal(g.peers[0].address, "here", 4);
    assert_int_equal(g.key[31], 7);
    assert_int_equal(g.source_rank, 1);
    assert_int_equal(g.source.step, 300);
    assert_string_equal(g.source.path, "/snap/300");
    assert_string_equal(desk.offered, "/snap/200@200");
    link_group_release(&g);
    link_close(r);
    desk_close();
}

static enum err_code make_seven(void *arg, uint8_t *out, size_t cap, size_t *size, struct err *e)
{
    (void)e;
    assert_int_equal(cap, 4096);
    memcpy(out, "seven..", 7);
    *size = 7;
    ++*(int *)arg;
    return ERR_OK;
}

static void the_caller_makes_the_bootstrap_id_once(void **state)
{
    struct link *r = worker();
    struct link_join join = plain_join;
    struct link_group g;
    struct err e = {0};
    int made = 0;

    (void)state;
    join.make_bootstrap = make_seven;
    join.bootstrap_arg = &made;
    desk_open();
    assert_int_equal(link_join(r, link_first_member(r), &join, &g, &e), ERR_OK);
    assert_int_equal(made, 1);
    assert_int_equal(g.bootstrap_size, 7);
    assert_memory_equal(g.bootstrap, "seven..", 7);
    link_group_release(&g);
    link_close(r);
    desk_close();
}

struct joiner {
    struct link *report;
    const struct link_member *as; /* NULL: the first place */
    enum err_code rc;
    struct link_group group;
    atomic_bool done;
};

static void *join_in_a_thread(void *arg)
{
    struct joiner *j = arg;
    struct err e = {0};

    j->rc = link_join(j->report, j->as ? j->as : link_first_member(j->report), &plain_join, &j->group, &e);
    atomic_store(&j->done, true);
    return NULL;
}

static void join_waits_for_a_coordinator_that_is_away(void **state)
{
    struct joiner j = {.report = worker()};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, join_in_a_thread, &j), 0);
    desk_open();
    pthread_join(thread, NULL);
    assert_int_equal(j.rc, ERR_OK);
    link_group_release(&j.group);
    link_close(j.report);
    desk_close();
}

static void join_can_be_cancelled(void **state)
{
    struct joiner j = {.report = worker()};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, join_in_a_thread, &j), 0);
    link_cancel(j.report);
    pthread_join(thread, NULL);
    assert_int_equal(j.rc, ERR_CANCELLED);
    link_close(j.report);
}

static void a_refusal_is_not_retried(void **state)
{
    static const enum err_code codes[] = {ERR_ABORTED, ERR_FAILED_PRECONDITION, ERR_PERMISSION_DENIED};
    struct link *r = worker();
    struct link_group g;
    struct err e = {0};

    (void)state;
    desk_open();
    for (size_t i = 0; i < 3; i++) {
        desk.refuse = (int)codes[i];
        assert_int_equal(link_join(r, link_first_member(r), &plain_join, &g, &e), codes[i]);
        assert_int_equal(desk.joins, i + 1);
    }
    link_close(r);
    desk_close();
}

static void the_token_is_read_once_and_sent(void **state)
{
    struct link *r = worker();
    struct link_group g;
    struct err e = {0};

    (void)state;
    assert_null(getenv("DDP_TOKEN_FD"));
    link_close(r);
    set_token("wrong", 5);
    desk_open();
    assert_int_equal(link_open(&r, false, &e), ERR_OK);
    assert_int_equal(link_join(r, link_first_member(r), &plain_join, &g, &e), ERR_UNAUTHENTICATED);
    assert_int_equal(desk.joins, 0);
    link_close(r);
    desk_close();
}

/* ---- watching */

static atomic_int stale_calls;
static void on_stale(void *arg, int64_t generation)
{
    assert_ptr_equal(arg, &stale_calls);
    assert_int_equal(generation, 4);
    atomic_fetch_add(&stale_calls, 1);
}

static void watch_outlives_the_coordinator(void **state)
{
    struct link *r = worker();
    struct err e = {0};

    (void)state;
    stale_calls = 0;
    assert_int_equal(link_watch(r, on_stale, &stale_calls, &e), ERR_OK);
    for (int life = 1; life <= 3; life++) {
        desk_open();
        WAIT_FOR(desk.watches == life);
        desk_close();
    }
    assert_false(link_over(r));
    assert_false(link_stop_asked(r));
    desk_open();
    WAIT_FOR(desk.watches == 4);
    desk.say_stop = 1;
    uv_async_send(&desk.say);
    WAIT_FOR(link_stop_asked(r));
    assert_false(link_over(r));
    desk.say_generation = 5;
    uv_async_send(&desk.say);
    WAIT_FOR(stale_calls == 1);
    assert_true(link_over(r));
    uv_async_send(&desk.say);
    link_close(r);
    assert_int_equal(stale_calls, 1);
    desk_close();
}

static void on_over(void *arg, int64_t generation)
{
    atomic_store((_Atomic int64_t *)arg, generation);
}

static void joining_clears_the_flags_of_the_last_generation(void **state)
{
    struct link *r = worker();
    struct link_member next = {.generation = 5, .rank = 1, .world_size = 2};
    _Atomic int64_t over = 0;
    struct link_group g;
    struct err e = {0};

    (void)state;
    desk_open();
    desk.say_stop = 1;
    desk.say_generation = 5;
    assert_int_equal(link_watch(r, on_over, &over, &e), ERR_OK);
    WAIT_FOR(over == 4);
    assert_true(link_over(r) && link_stop_asked(r));
    link_unwatch(r);

    desk.generation = 5;
    desk.say_stop = 0;
    assert_int_equal(link_join(r, &next, &plain_join, &g, &e), ERR_OK);
    assert_int_equal(g.generation, 5);
    assert_int_equal(g.rank, 1);
    assert_false(link_over(r) || link_stop_asked(r));
    assert_int_equal(link_watch(r, on_over, &over, &e), ERR_OK);
    assert_int_equal(over, 4);
    desk.say_generation = 6;
    uv_async_send(&desk.say);
    WAIT_FOR(over == 5); /* the Watch thread asked for the new generation by itself */
    assert_true(link_over(r));
    link_unwatch(r);
    /* The generation is over already, so the callback comes at once. */
    assert_int_equal(link_watch(r, on_over, &over, &e), ERR_OK);
    link_group_release(&g);
    link_close(r);
    desk_close();
}

/* The Watch of the old generation ends while this process waits for the others of the new one. */
static void the_end_of_the_last_generation_does_not_end_the_one_that_is_forming(void **state)
{
    const struct link_member next = {.generation = 5, .rank = 1, .world_size = 2};
    struct joiner j = {.report = worker(), .as = &next};
    _Atomic int64_t over = 0;
    struct err e = {0};
    pthread_t thread;
    int seen;

    (void)state;
    desk.short_watches = true;
    desk_open();
    assert_int_equal(link_watch(j.report, on_over, &over, &e), ERR_OK);
    WAIT_FOR(desk.watches > 0);
    link_unwatch(j.report);
    desk.pending = INT_MAX;
    desk.refused_watch = desk.generation = 5;
    assert_int_equal(pthread_create(&thread, NULL, join_in_a_thread, &j), 0);
    WAIT_FOR(desk.joins > 0);
    /* When the third connection comes, the answer to the second has been heard. */
    seen = desk.watches;
    WAIT_FOR(desk.watches >= seen + 3);
    desk.refused_watch = 0;
    desk.pending = 0;
    pthread_join(thread, NULL);
    assert_int_equal(j.rc, ERR_OK);
    assert_false(link_over(j.report));
    assert_int_equal(link_watch(j.report, on_over, &over, &e), ERR_OK);
    assert_int_equal(over, 0);
    desk.say_generation = 6;
    WAIT_FOR(over == 5);
    link_group_release(&j.group);
    link_close(j.report);
    desk_close();
}

static void a_refused_watch_ends_the_generation(void **state)
{
    struct link *r;
    struct err e = {0};

    (void)state;
    stale_calls = 0;
    set_token("wrong", 5);
    assert_int_equal(link_open(&r, false, &e), ERR_OK);
    desk_open();
    assert_int_equal(link_watch(r, on_stale, &stale_calls, &e), ERR_OK);
    WAIT_FOR(stale_calls == 1);
    link_close(r);
    desk_close();
}

/* ---- snapshots */

struct committer {
    struct link *report;
    enum err_code rc;
};
static const struct link_snapshot snapshot = {
    .step = 120, .bytes = 99, .digest = "cafe", .path = "/snap/120"};

static void *commit_in_a_thread(void *arg)
{
    struct committer *c = arg;
    struct err e = {0};

    c->rc = link_commit_snapshot(c->report, &snapshot, &e);
    return NULL;
}

static void a_commit_waits_until_the_coordinator_is_back_and_has_room(void **state)
{
    struct committer c = {.report = worker()};
    pthread_t thread;

    (void)state;
    desk.refuse = ERR_RESOURCE_EXHAUSTED;
    assert_int_equal(pthread_create(&thread, NULL, commit_in_a_thread, &c), 0);
    desk_open();
    WAIT_FOR(desk.commits >= 2);
    desk_close();
    desk.refuse = 0;
    desk_open();
    pthread_join(thread, NULL);
    assert_int_equal(c.rc, ERR_OK);
    assert_string_equal(desk.digest, "cafe@120");
    link_close(c.report);
    desk_close();
}

static void a_commit_of_a_part_waits_for_the_others(void **state)
{
    const struct link_snapshot part = {.step = 120, .bytes = 9, .parts = 2};
    struct link *r = worker();
    struct err e = {0};

    (void)state;
    desk.pending_commits = 3;
    desk_open();
    assert_int_equal(link_commit_snapshot(r, &part, &e), ERR_OK);
    assert_int_equal(desk.commits, 4);
    assert_int_equal(desk.parts, 2);
    assert_string_equal(desk.digest, "@120");
    link_close(r);
    desk_close();
}

static void *commit_a_part_in_a_thread(void *arg)
{
    const struct link_snapshot part = {.step = 120, .bytes = 9, .parts = 2};
    struct committer *c = arg;
    struct err e = {0};

    c->rc = link_commit_snapshot(c->report, &part, &e);
    return NULL;
}

static void a_wait_for_the_others_can_be_called_off(void **state)
{
    struct committer c = {.report = worker()};
    pthread_t thread;

    (void)state;
    desk.pending_commits = INT_MAX;
    desk_open();
    assert_int_equal(pthread_create(&thread, NULL, commit_a_part_in_a_thread, &c), 0);
    WAIT_FOR(desk.commits > 1);
    link_cancel(c.report);
    pthread_join(thread, NULL);
    assert_int_equal(c.rc, ERR_CANCELLED);
    link_close(c.report);
    desk_close();
}

static void a_stale_commit_is_refused(void **state)
{
    struct committer c = {.report = worker()};

    (void)state;
    desk.refuse = ERR_ABORTED;
    desk_open();
    commit_in_a_thread(&c);
    assert_int_equal(c.rc, ERR_ABORTED);
    link_close(c.report);
    desk_close();
}

static void a_snapshot_failure_is_reported(void **state)
{
    struct link *r = worker();
    struct err why = {0};

    (void)state;
    desk_open();
    err_set(&why, ERR_ABORTED, "another generation is current");
    link_snapshot_failure(r, 110, &why);
    assert_string_equal(desk.failure, ""); /* this generation was over, so the failure is not reported */
    err_set(&why, ERR_RESOURCE_EXHAUSTED, "/snap/\xff: No space left on device");
    link_snapshot_failure(r, 120, &why);
    assert_string_equal(desk.failure, "120: /snap/?: No space left on device");
    desk.refuse = ERR_UNIMPLEMENTED; /* a coordinator of the version before is not asked again */
    link_snapshot_failure(r, 130, &why);
    assert_string_equal(desk.failure, "130: /snap/?: No space left on device");
    link_close(r);
    desk_close();
}

/* ---- a coordinator that moves */

static char *address_file; /* the file that the agent writes */

static void tell_address(const char *target)
{
    CLEANUP(free_text) char *text = xasprintf("%s\n", target);
    struct err e = {0};

    assert_int_equal(file_write_atomic(address_file, text, strlen(text), 0644, &e), ERR_OK);
}

static void begin_elsewhere(void)
{
    address_file = xasprintf("%s/coordinator", directory);
    setenv("DDP_COORDINATOR_FILE", address_file, 1);
    setenv("DDP_COORDINATOR", "unix:/nonexistent/first", 1);
    tell_address("unix:/nonexistent/second");
}

static void end_elsewhere(void)
{
    unsetenv("DDP_COORDINATOR_FILE");
    unlink(address_file);
    free(steal(address_file));
}

static void calls_and_watch_follow_the_coordinator(void **state)
{
    struct link *r;
    struct err e = {0};
    char target[80];

    (void)state;
    stale_calls = 0;
    begin_elsewhere();
    r = worker();
    assert_int_equal(link_watch(r, on_stale, &stale_calls, &e), ERR_OK);
    desk_open();
    tell_address("no address"); /* the worker keeps its present address */
    snprintf(target, sizeof(target), "unix:%s", socket_path);
    tell_address(target);
    assert_int_equal(link_commit_snapshot(r, &snapshot, &e), ERR_OK);
    WAIT_FOR(desk.watches == 1);
    unlink(address_file); /* as if the agent could not write it: the last address remains valid */
    assert_int_equal(link_commit_snapshot(r, &snapshot, &e), ERR_OK);
    assert_int_equal(desk.commits, 2);
    assert_int_equal(stale_calls, 0);
    link_close(r);
    desk_close();
    end_elsewhere();
}

static void a_stop_does_not_wait_for_a_coordinator_that_is_away(void **state)
{
    static volatile int number;
    struct link *r;
    struct err e = {0};

    (void)state;
    stale_calls = 0;
    number = 15;
    begin_elsewhere();
    r = worker();
    link_heed_signal(r, &number);
    assert_int_equal(link_watch(r, on_stale, &stale_calls, &e), ERR_OK);
    assert_false(link_given_up(r));
    assert_int_equal(link_commit_snapshot(r, &snapshot, &e), ERR_CANCELLED);
    assert_true(link_given_up(r));
    assert_int_equal(stale_calls, 0);
    link_close(r);
    end_elsewhere();
}

/* ---- without a coordinator, and lines */

static void standalone_is_a_world_of_one(void **state)
{
    struct link *r;
    struct link_group g;
    struct err e = {0};

    (void)state;
    assert_int_equal(link_open(&r, true, &e), ERR_OK);
    assert_int_equal(link_first_member(r)->world_size, 1);
    assert_int_equal(link_watch(r, on_stale, NULL, &e), ERR_OK);
    assert_int_equal(link_join(r, link_first_member(r), &plain_join, &g, &e), ERR_OK);
    assert_int_equal(g.world_size, 1);
    assert_int_equal(g.source_rank, 0);
    assert_string_equal(g.source.path, "/snap/200");
    link_group_release(&g);
    assert_int_equal(link_commit_snapshot(r, &snapshot, &e), ERR_OK);
    link_close(r);
}

static void several_ranks_need_a_coordinator(void **state)
{
    struct link *r;
    struct link_group g;
    struct err e = {0};

    (void)state;
    unsetenv("DDP_COORDINATOR");
    assert_int_equal(link_open(&r, false, &e), ERR_OK);
    assert_int_equal(link_join(r, link_first_member(r), &plain_join, &g, &e), ERR_FAILED_PRECONDITION);
    link_close(r);
}

static void lines_are_json_and_never_block(void **state)
{
    struct metric_line metrics = {.has_step = true,
                                  .step = 12,
                                  .count = 3,
                                  .metrics = {{"loss", 0.25}, {"bad", NAN}, {"samples_per_s", 1e6}}};
    char text[16], line[512];
    struct link *r;
    struct err e = {0};
    int ends[2];
    json_t *v;
    ssize_t n;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    snprintf(text, sizeof(text), "%d", ends[1]);
    setenv("DDP_REPORT_FD", text, 1);
    assert_int_equal(link_open(&r, true, &e), ERR_OK);
    link_progress(r, &metrics);
    n = read(ends[0], line, sizeof(line));
    assert_true(n > 1 && line[n - 1] == '\n');
    assert_int_equal(json_parse(line, (size_t)n, sizeof(line), &v, &e), ERR_OK);
    assert_int_equal(json_get_int(v, "step", -1), 12);
    assert_true(json_get_real(v, "loss", -1) == 0.25);
    assert_true(json_get_real(v, "samples_per_s", -1) == 1e6);
    assert_null(json_object_get(v, "bad"));
    json_decref(v);
    for (metrics.step = 0; metrics.step < 5000; metrics.step++)
        link_progress(r, &metrics);
    assert_true(link_dropped(r) > 0);
    while (fcntl(ends[0], F_SETFL, O_NONBLOCK), (n = read(ends[0], line, sizeof(line))) > 0)
        ;
    link_progress(r, &metrics);
    n = read(ends[0], line, sizeof(line)); /* whole lines only: the next one starts at a line's start */
    assert_true(n > 0 && line[0] == '{' && !memchr(line, '\n', (size_t)n - 1));
    close(ends[0]);
    link_progress(r, &metrics); /* nobody reads: no signal */
    link_close(r);
    close(ends[1]);
}

static void a_bad_environment_is_named(void **state)
{
    struct link *r;
    struct err e = {0};

    (void)state;
    setenv("RANK", "2", 1);
    assert_int_equal(link_open(&r, false, &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "RANK"));
    setenv("RANK", "one", 1);
    assert_int_equal(link_open(&r, false, &e), ERR_INVALID_ARGUMENT);
    setenv("RANK", "0", 1);
    setenv("DDP_REPORT_FD", "999", 1);
    assert_int_equal(link_open(&r, false, &e), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "DDP_REPORT_FD"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(join_waits_brings_the_bootstrap_id_and_gets_the_group, set_up),
        cmocka_unit_test_setup(the_caller_makes_the_bootstrap_id_once, set_up),
        cmocka_unit_test_setup(join_waits_for_a_coordinator_that_is_away, set_up),
        cmocka_unit_test_setup(join_can_be_cancelled, set_up),
        cmocka_unit_test_setup(a_refusal_is_not_retried, set_up),
        cmocka_unit_test_setup(the_token_is_read_once_and_sent, set_up),
        cmocka_unit_test_setup(watch_outlives_the_coordinator, set_up),
        cmocka_unit_test_setup(joining_clears_the_flags_of_the_last_generation, set_up),
        cmocka_unit_test_setup(the_end_of_the_last_generation_does_not_end_the_one_that_is_forming, set_up),
        cmocka_unit_test_setup(a_refused_watch_ends_the_generation, set_up),
        cmocka_unit_test_setup(a_commit_waits_until_the_coordinator_is_back_and_has_room, set_up),
        cmocka_unit_test_setup(a_commit_of_a_part_waits_for_the_others, set_up),
        cmocka_unit_test_setup(a_wait_for_the_others_can_be_called_off, set_up),
        cmocka_unit_test_setup(a_stale_commit_is_refused, set_up),
        cmocka_unit_test_setup(a_snapshot_failure_is_reported, set_up),
        cmocka_unit_test_setup(calls_and_watch_follow_the_coordinator, set_up),
        cmocka_unit_test_setup(a_stop_does_not_wait_for_a_coordinator_that_is_away, set_up),
        cmocka_unit_test_setup(standalone_is_a_world_of_one, set_up),
        cmocka_unit_test_setup(several_ranks_need_a_coordinator, set_up),
        cmocka_unit_test_setup(lines_are_json_and_never_block, set_up),
        cmocka_unit_test_setup(a_bad_environment_is_named, set_up),
    };
    struct err e = {0};
    int failed;

    if (!mkdtemp(directory))
        return 1;
    snprintf(socket_path, sizeof(socket_path), "%s/desk/socket", directory);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (file_remove_tree(directory, &e))
        fprintf(stderr, "%s\n", e.msg);
    return failed;
}
