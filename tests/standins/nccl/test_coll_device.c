/* Tests a group whose arrays are in device memory and are summed by the device's own collectives: NCCL,
 * here the stand-in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "tests/standins/nccl/coll_device.h"
#include "trainer/device/comm.h"
#include "trainer/member/coll/coll.h"
#include "trainer/member/sync/sync.h"

enum { COUNT = TEST_DEVICE_SCALES, MOST_RANKS = 8, SOON_MS = 10000 };

/* ---- ranks */

static struct shared {
    uint8_t address[MOST_RANKS][512], id[256];
    size_t size[MOST_RANKS], id_size;
    atomic_int here, formed;
} * shared;
static char directory[64];

#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, rank, #what);                        \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

struct where {
    int rank, ranks;
    bool tree, staged, nodes; /* nodes: every rank is on a node of its own */
    int end_ms;
    struct coll_listener *listener;
    struct coll_group *group;
};

static void wait_until_value(const atomic_int *what, int value)
{
    for (int64_t deadline = clock_boot_ms() + SOON_MS; atomic_load(what) < value;) {
        if (clock_boot_ms() > deadline)
            _exit(2);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

static void ranks_meet(struct where *w)
{
    struct err e = {0};
    int rank = w->rank;

    CHECK(coll_listen(&w->listener, NULL, w->nodes ? NULL : directory, &e) == ERR_OK);
    shared->size[rank] = coll_listener_address(w->listener, shared->address[rank], 512);
    if (rank == 0 && test_device.base.comm)
        CHECK(test_device.base.comm->make_id(w->ranks, shared->id, sizeof(shared->id), &shared->id_size,
                                             &e) == ERR_OK);
    atomic_fetch_add(&shared->here, 1);
    wait_until_value(&shared->here, w->ranks);
}

static enum err_code peers_form(struct where *w, struct err *e)
{
    struct coll_peer peers[MOST_RANKS];

    for (int r = 0; r < w->ranks; r++)
        peers[r] =
            (struct coll_peer){r, w->nodes ? r : 0, w->nodes ? 0 : r, shared->address[r], shared->size[r]};
    struct coll_config config = {.job = 1,
                                 .generation = 1,
                                 .rank = w->rank,
                                 .world_size = w->ranks,
                                 .peers = peers,
                                 .key = {7},
                                 .bootstrap = shared->id,
                                 .bootstrap_size = shared->id_size,
                                 .loopback = true,
                                 .tree = w->tree,
                                 .bf16 = !w->tree,
                                 .device = &test_device.base,
                                 .timeout_ms = SOON_MS,
                                 .end_ms = w->end_ms};

    return coll_open(&w->group, w->listener, &config, e);
}

static float *new_array(struct where *w)
{
    struct err e = {0};
    float host[COUNT], *data = NULL;
    int rank = w->rank;

    for (int i = 0; i < COUNT; i++)
        host[i] = (float)(i % 100 + rank);
    CHECK(coll_alloc(w->group, COUNT, &data, &e) == ERR_OK);
    test_device_upload(&test_device.base, data, host, sizeof(host));
    return data;
}

static void sums_check(struct where *w)
{
    struct err e = {0};
    float host[COUNT], *data = new_array(w);
    int rank = w->rank, n = w->ranks;

    CHECK(coll_start(w->group, data + 1000, COUNT - 1000, &e) == ERR_OK);
    CHECK(coll_start(w->group, data, 1000, &e) == ERR_OK);
    CHECK(coll_join(w->group, &e) == ERR_OK);
    test_device_download(&test_device.base, host, data, sizeof(host));
    CHECK(test_device_wait(&test_device.base, &e) == ERR_OK);
    for (int i = 0; i < COUNT; i++)
        CHECK(host[i] == (float)(i % 100 * n + n * (n - 1) / 2));
    CHECK(coll_barrier(w->group, &e) == ERR_OK);
}

/* The two halves of a sum, with unlike parts. */
static void parts_check(struct where *w)
{
    struct err e = {0};
    float host[COUNT], *data = new_array(w);
    int rank = w->rank, n = w->ranks;
    size_t offsets[MOST_RANKS + 1] = {0};

    for (int r = 0; r < n; r++)
        offsets[r + 1] = r + 1 == n ? COUNT - 1000 : offsets[r] + 10 * (size_t)r;
    CHECK(coll_reduce_scatter(w->group, data + 1000, offsets, &e) == ERR_OK);
    CHECK(coll_join(w->group, &e) == ERR_OK);
    test_device_download(&test_device.base, host, data, sizeof(host));
    CHECK(test_device_wait(&test_device.base, &e) == ERR_OK);
    for (size_t i = 1000 + offsets[rank]; i < 1000 + offsets[rank + 1]; i++)
        CHECK(host[i] == (float)((int)i % 100 * n + n * (n - 1) / 2));
    CHECK(coll_gather(w->group, data + 1000, offsets, &e) == ERR_OK);
    CHECK(coll_join(w->group, &e) == ERR_OK);
    test_device_download(&test_device.base, host, data, sizeof(host));
    CHECK(test_device_wait(&test_device.base, &e) == ERR_OK);
    for (int i = 0; i < COUNT; i++)
        CHECK(host[i] == (i < 1000 ? (float)(i % 100 + rank) : (float)(i % 100 * n + n * (n - 1) / 2)));
}

/* Parts that come in pieces: the device goes on with the first ones while others are on their way. */
static void pieces_check(struct where *w)
{
    enum { PIECES = 5, SIZE = 40 };
    struct err e = {0};
    float host[COUNT], *data = new_array(w);
    const int rank = w->rank, n = w->ranks;

    for (int i = 0; i < PIECES; i++) {
        size_t from[MOST_RANKS], to[MOST_RANKS];

        for (int r = 0; r < n; r++) {
            from[r] = (size_t)(r * PIECES + i) * SIZE;
            to[r] = from[r] + (r == 1 ? SIZE / 2 : SIZE);
        }
        CHECK(coll_gather_ranges(w->group, data, from, to, &e) == ERR_OK);
        CHECK(coll_mark(w->group, i, &e) == ERR_OK);
    }
    for (int i = 0; i < PIECES; i++) {
        CHECK(coll_join_mark(w->group, i, &e) == ERR_OK);
        test_device_download(&test_device.base, host, data, sizeof(host));
        CHECK(test_device_wait(&test_device.base, &e) == ERR_OK);
        for (int k = 0; k < n * SIZE; k++) {
            const int r = k / SIZE, at = (r * PIECES + i) * SIZE + k % SIZE;
            const bool gathered = r != 1 || k % SIZE < SIZE / 2;

            CHECK(host[at] == (float)(at % 100 + (gathered ? r : rank)));
        }
    }
}

/* Sums as bf16, whole and by parts: by the device's own collectives or through the host. */
static void half_check(struct where *w)
{
    struct err e = {0};
    float host[COUNT], *data = new_array(w), *parts = new_array(w);
    int rank = w->rank, n = w->ranks;
    size_t offsets[MOST_RANKS + 1] = {0};

    if (w->tree)
        return;
    for (int r = 0; r < n; r++)
        offsets[r + 1] = r + 1 == n ? COUNT : offsets[r] + 10 * (size_t)r;
    CHECK(coll_start_bf16(w->group, data, COUNT, &e) == ERR_OK);
    CHECK(coll_reduce_scatter_bf16(w->group, parts, offsets, &e) == ERR_OK);
    CHECK(coll_join(w->group, &e) == ERR_OK);
    test_device_download(&test_device.base, host, data, sizeof(host));
    CHECK(test_device_wait(&test_device.base, &e) == ERR_OK);
    for (int i = 0; i < COUNT; i++) {
        float want = (float)(i % 100 * n + n * (n - 1) / 2);

        CHECK(host[i] >= want - 4 && host[i] <= want + 4 && (n == 1 || want < 512 || (int)host[i] % 4 == 0));
    }
    test_device_download(&test_device.base, host, parts, sizeof(host));
    CHECK(test_device_wait(&test_device.base, &e) == ERR_OK);
    for (size_t i = offsets[rank]; i < offsets[rank + 1]; i++) {
        float want = (float)((int)i % 100 * n + n * (n - 1) / 2);

        CHECK(host[i] >= want - 4 && host[i] <= want + 4);
    }
}

static void group_leave(struct where *w)
{
    struct err e = {0};
    int rank = w->rank;

    CHECK(coll_end(w->group, &e) == ERR_OK);
    CHECK(test_device.check == NULL);
    coll_close(w->group);
    coll_listener_free(w->listener);
}

/* The same data on all ranks, by the device's own collectives or through the host, also in memory that is not attached. */
static void broadcast_check(struct where *w)
{
    enum { LONG = COUNT * 700 }; /* more than one piece of what goes through the host */
    struct err e = {0};
    int rank = w->rank, root = w->ranks - 1;
    float *data = NULL, *host = calloc(LONG, sizeof(*host));

    CHECK(host && test_device_alloc(&test_device.base, LONG * sizeof(*data), (void **)&data, &e) == ERR_OK);
    for (int i = 0; i < LONG; i++)
        host[i] = (float)(i % 1000 + 7 * rank);
    test_device_upload(&test_device.base, data, host, LONG * sizeof(*host));
    CHECK(coll_broadcast_floats(w->group, data, LONG, root, &e) == ERR_OK);
    test_device_download(&test_device.base, host, data, LONG * sizeof(*host));
    CHECK(test_device_wait(&test_device.base, &e) == ERR_OK);
    for (int i = 0; i < LONG; i++)
        CHECK(host[i] == (float)(i % 1000 + 7 * root));
    CHECK((coll_joined_ns(w->group) >= 0) == (w->ranks > 1 && !w->tree && !w->staged));
    CHECK(coll_barrier(w->group, &e) == ERR_OK);
    free(host);
}

static void good_life(struct where *w)
{
    struct err e = {0};
    int rank = w->rank;

    ranks_meet(w);
    CHECK(peers_form(w, &e) == ERR_OK);
    CHECK(!coll_overlaps(w->group));
    sums_check(w);
    parts_check(w);
    pieces_check(w);
    half_check(w);
    broadcast_check(w);
    group_leave(w);
}

/* NCCL notices the death on no rank, but each rank notices it by the group's TCP connections. */
static void peer_dies(struct where *w)
{
    struct err e = {0};
    int rank = w->rank;

    ranks_meet(w);
    CHECK(peers_form(w, &e) == ERR_OK);
    sums_check(w);
    float *data = new_array(w);
    if (rank == w->ranks - 1)
        kill(getpid(), SIGKILL);
    setenv("DDP_STANDIN_NCCL_FAULT", "unnoticed-death", 1);
    CHECK(coll_allreduce(w->group, data, COUNT, &e) == ERR_OK);
    CHECK(test_device_wait(&test_device.base, &e) == ERR_ABORTED);
    CHECK(coll_barrier(w->group, &e) == ERR_ABORTED);
    group_leave(w);
}

/* A rank that waits for work of its own finishes it although its peers are gone: an update of the parameters, for example, after
 * which it goes on with them. */
static void peer_dies_during_own_work(struct where *w)
{
    struct err e = {0};
    int rank = w->rank;

    ranks_meet(w);
    CHECK(peers_form(w, &e) == ERR_OK);
    sums_check(w);
    if (rank == w->ranks - 1)
        kill(getpid(), SIGKILL);
    CHECK(coll_barrier(w->group, &e) == ERR_ABORTED);
    CHECK(test_device.check(test_device.arg, &e) == ERR_OK); /* as the wait calls it */
    group_leave(w);
}

/* The same beside a sum for which the device does not wait yet: steps that overlap an exchange are finished. */
static void peer_dies_beside_own_work(struct where *w)
{
    struct err e = {0};
    int rank = w->rank;

    ranks_meet(w);
    CHECK(peers_form(w, &e) == ERR_OK);
    sums_check(w);
    float *data = new_array(w);
    if (rank == w->ranks - 1)
        kill(getpid(), SIGKILL);
    setenv("DDP_STANDIN_NCCL_FAULT", "unnoticed-death", 1);
    CHECK(coll_start(w->group, data, COUNT, &e) == ERR_OK);
    CHECK(coll_barrier(w->group, &e) == ERR_ABORTED);
    CHECK(test_device.check(test_device.arg, &e) == ERR_OK);
    group_leave(w);
}

/* The exchange of a round fails only after it was queued on the device. This rank's parameters must be unchanged
 * then. */
static void peer_dies_in_a_round(struct where *w)
{
    struct err e = {0};
    float host[COUNT];
    struct sync *s;
    int rank = w->rank;

    ranks_meet(w);
    CHECK(peers_form(w, &e) == ERR_OK);
    sums_check(w);
    struct sync_config config = {.spec = {.type = SYNC_AVERAGE, .every = 1},
                                 .rank = rank,
                                 .world_size = w->ranks,
                                 .params = new_array(w),
                                 .grads = new_array(w),
                                 .arrays = {new_array(w)},
                                 .count = COUNT,
                                 .device = &test_device.base};
    CHECK(sync_open(&s, w->group, &config, &e) == ERR_OK);
    if (rank == w->ranks - 1)
        kill(getpid(), SIGKILL);
    setenv("DDP_STANDIN_NCCL_FAULT", "unnoticed-death", 1);
    CHECK(sync_after_step(s, 1, w->ranks, &e) == ERR_ABORTED);
    CHECK(coll_end(w->group, &e) == ERR_OK);
    sync_close(s);
    test_device_download(&test_device.base, host, config.params, sizeof(host));
    for (int i = 0; i < COUNT; i++)
        CHECK(host[i] == (float)(i % 100 + rank));
    group_leave(w);
}

/* In the first sum NCCL waits for the dead rank for ever and reports nothing. coll_allreduce must return
 * nevertheless. */
static void peer_dies_before_the_first_sum(struct where *w)
{
    struct err e = {0};
    int rank = w->rank;

    ranks_meet(w);
    CHECK(peers_form(w, &e) == ERR_OK);
    float *data = new_array(w);
    CHECK(coll_barrier(w->group, &e) == ERR_OK);
    if (rank == w->ranks - 1)
        kill(getpid(), SIGKILL);
    setenv("DDP_STANDIN_NCCL_FAULT", "late-connect", 1);
    CHECK(coll_allreduce(w->group, data, COUNT, &e) == ERR_ABORTED);
    CHECK(coll_barrier(w->group, &e) == ERR_ABORTED);
    group_leave(w);
}

/* NCCL reports the failure to one rank only. The other rank would wait for ever, but learns of the failure by the
 * connections of the group. */
static void one_is_told(struct where *w)
{
    struct err e = {0};
    int rank = w->rank;

    ranks_meet(w);
    CHECK(peers_form(w, &e) == ERR_OK);
    float *data = new_array(w);
    setenv("DDP_STANDIN_NCCL_FAULT", rank == 1 ? "lost-connecting" : "unnoticed-death", 1);
    CHECK(coll_allreduce(w->group, data, COUNT, &e) == (rank == 1 ? ERR_ABORTED : ERR_OK));
    CHECK(rank == 1 || test_device_wait(&test_device.base, &e) == ERR_ABORTED);
    atomic_fetch_add(&shared->formed, 1);
    wait_until_value(&shared->formed, w->ranks);
    CHECK(coll_barrier(w->group, &e) == ERR_ABORTED);
    group_leave(w);
}

static void *abort_group(void *arg)
{
    coll_listener_abort(arg, 1);
    return NULL;
}

/* Another thread aborts the group while the device waits for a peer that hangs. */
static void group_aborted(struct where *w)
{
    struct err e = {0};
    pthread_t thread;
    int rank = w->rank;

    ranks_meet(w);
    CHECK(peers_form(w, &e) == ERR_OK);
    float *data = new_array(w);
    setenv("DDP_STANDIN_NCCL_FAULT", "stall", 1);
    CHECK(coll_allreduce(w->group, data, COUNT, &e) == ERR_OK);
    CHECK(pthread_create(&thread, NULL, abort_group, w->listener) == 0);
    CHECK(test_device_wait(&test_device.base, &e) == ERR_ABORTED);
    pthread_join(thread, NULL);
    CHECK(coll_allreduce(w->group, data, COUNT, &e) == ERR_ABORTED);
    group_leave(w);
}

/* The last rank dies while the group forms: it joins the control group, but never NCCL's. */
static void dies_forming(struct where *w)
{
    struct err e = {0};
    int rank = w->rank;

    if (rank == w->ranks - 1)
        setenv("DDP_STANDIN_NCCL_FAULT", "late-init", 1);
    ranks_meet(w);
    if (rank == w->ranks - 1)
        alarm(1);
    /* of the two survivors, the slower one may find that the other has left already */
    CHECK(peers_form(w, &e) == ERR_ABORTED || e.code == ERR_UNAVAILABLE);
    coll_listener_free(w->listener);
}

/* NCCL fails to form the group, and ncclCommAbort then does not return. Every attempt to close the group reports
 * that. The peer learns of the failure at once. */
static void hangs_after_forming_failed(struct where *w)
{
    struct err e = {0}, stuck = {0};
    int rank = w->rank;

    if (rank == 1)
        setenv("DDP_STANDIN_NCCL_FAULT", "init-fails,hang-in-abort", 1);
    ranks_meet(w);
    CHECK(peers_form(w, &e) == (rank == 1 ? ERR_INTERNAL : ERR_ABORTED));
    CHECK(rank == 0 || strstr(e.msg, "NCCL: forming the group: unhandled system error"));
    CHECK((w->group != NULL) == (rank == 1));
    for (int i = 0; rank == 1 && i < 2; i++)
        CHECK(coll_end(w->group, &stuck) == ERR_DEADLINE_EXCEEDED && strstr(stuck.msg, "did not close"));
    atomic_fetch_add(&shared->formed, 1);
    wait_until_value(&shared->formed, w->ranks); /* the stuck rank must still live when its peer is done */
}

static void versions_differ(struct where *w)
{
    struct err e = {0};
    int rank = w->rank;

    if (rank == 1)
        setenv("DDP_STANDIN_NCCL_VERSION", "22703", 1);
    ranks_meet(w);
    CHECK(peers_form(w, &e) == ERR_FAILED_PRECONDITION);
    CHECK(strstr(e.msg, "2.28.9 on rank 0, 2; 2.27.3 on rank 1"));
    coll_listener_free(w->listener);
}

/* One rank has no collectives on its device, so all ranks sum through host memory. */
static void one_without(struct where *w)
{
    if (w->rank == 1)
        test_device.base.comm = NULL;
    w->staged = true;
    good_life(w);
}

/* ---- */

typedef void rank_fn(struct where *w);

static int rank_run(rank_fn *fn, struct where w)
{
    signal(SIGALRM, SIG_DFL);
    alarm(30);
    if (!test_device_open())
        return 3;
    fn(&w);
    return 0;
}

static void run_ranks(rank_fn *fn, struct where w, int dying)
{
    pid_t pids[MOST_RANKS];
    bool good = true;

    memset(shared, 0, sizeof(*shared));
    for (int r = 0; r < w.ranks; r++) {
        w.rank = r;
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0)
            _exit(rank_run(fn, w));
    }
    for (int r = 0; r < w.ranks; r++) {
        int status = 0;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        good &= r == dying ? WIFSIGNALED(status) : status == 0;
    }
    assert_true(good);
}

static void test_sums(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++)
        run_ranks(good_life, (struct where){.ranks = ranks}, -1);
    run_ranks(good_life, (struct where){.ranks = 3, .nodes = true}, -1);
    run_ranks(good_life, (struct where){.ranks = 4, .tree = true}, -1);
}

static void test_staged_where_one_has_none(void **state)
{
    (void)state;
    run_ranks(one_without, (struct where){.ranks = 3}, -1);
}

static void test_dead_peer_in_a_round_leaves_the_parameters(void **state)
{
    (void)state;
    run_ranks(peer_dies_in_a_round, (struct where){.ranks = 3}, 2);
}

static void test_dead_peer_does_not_cut_off_own_work(void **state)
{
    (void)state;
    run_ranks(peer_dies_during_own_work, (struct where){.ranks = 3}, 2);
    run_ranks(peer_dies_beside_own_work, (struct where){.ranks = 3}, 2);
}

static void test_dead_peer_ends_the_devices_wait(void **state)
{
    (void)state;
    run_ranks(peer_dies, (struct where){.ranks = 3}, 2);
    run_ranks(peer_dies, (struct where){.ranks = 3, .nodes = true}, 2);
}

static void test_dead_peer_ends_the_first_sum(void **state)
{
    (void)state;
    run_ranks(peer_dies_before_the_first_sum, (struct where){.ranks = 3}, 2);
    run_ranks(peer_dies_before_the_first_sum, (struct where){.ranks = 2, .nodes = true}, 1);
}

static void test_one_ranks_error_ends_all(void **state)
{
    (void)state;
    run_ranks(one_is_told, (struct where){.ranks = 2}, -1);
}

static void test_a_hang_after_failed_forming_is_reported(void **state)
{
    (void)state;
    run_ranks(hangs_after_forming_failed, (struct where){.ranks = 2, .end_ms = 100}, -1);
}

static void test_abort_ends_the_devices_wait(void **state)
{
    (void)state;
    run_ranks(group_aborted, (struct where){.ranks = 2}, -1);
}

static void test_death_while_forming(void **state)
{
    (void)state;
    run_ranks(dies_forming, (struct where){.ranks = 3}, 2);
}

static void test_different_versions_are_an_error(void **state)
{
    (void)state;
    run_ranks(versions_differ, (struct where){.ranks = 3}, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_staged_where_one_has_none),
        cmocka_unit_test(test_dead_peer_in_a_round_leaves_the_parameters),
        cmocka_unit_test(test_dead_peer_does_not_cut_off_own_work),
        cmocka_unit_test(test_dead_peer_ends_the_devices_wait),
        cmocka_unit_test(test_dead_peer_ends_the_first_sum),
        cmocka_unit_test(test_one_ranks_error_ends_all),
        cmocka_unit_test(test_abort_ends_the_devices_wait),
        cmocka_unit_test(test_death_while_forming),
        cmocka_unit_test(test_a_hang_after_failed_forming_is_reported),
        cmocka_unit_test(test_different_versions_are_an_error),
    };

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(directory, sizeof(directory), "/tmp/ddp-coll-XXXXXX");
    if (shared == MAP_FAILED || !mkdtemp(directory))
        return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(directory);
    return rc;
}
