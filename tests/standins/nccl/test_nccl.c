/* Tests the plugin's collectives over NCCL (trainer/device/cuda/nccl) with the stand-in. Each rank is a process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/standins/cuda/emulate.h"
#include "tests/standins/nccl/nccl.h"
#include "trainer/device/cuda/cuda_stream.h"
#include "trainer/device/cuda/nccl/nccl.h"
#include "trainer/device/cuda/nccl/nccl_environment.h"

enum { COUNT = 3000, MOST_RANKS = 8, SOON_MS = 5000 };

static cudaStream_t compute;

cudaStream_t cuda_stream(struct device *d)
{
    (void)d;
    return compute;
}

static bool device_has_error;

enum err_code cuda_first_error(struct device *d, struct err *e)
{
    (void)d;
    return device_has_error ? err_set(e, ERR_INTERNAL, "the device's own") : ERR_OK;
}

/* Shared by the ranks: the id, and how far each rank has come. */
static struct shared {
    uint8_t id[256];
    size_t id_size;
    atomic_int id_made, at[MOST_RANKS];
} * shared;

static const struct comm_ops *const nccl = &nccl_comm_ops;

#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, r, #what);                           \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

static void wait_until_value(const atomic_int *what, int value)
{
    for (int64_t deadline = clock_boot_ms() + 4 * SOON_MS; atomic_load(what) < value;) {
        if (clock_boot_ms() > deadline)
            _exit(2);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

/* ---- a rank */

static void share_id(int r, int number)
{
    struct err e = {0};

    if (r == 0) {
        CHECK(nccl->make_id(shared->id, sizeof(shared->id), &shared->id_size, &e) == ERR_OK);
        atomic_store(&shared->id_made, number);
    }
    wait_until_value(&shared->id_made, number);
}

static enum err_code open_with(struct comm *_Atomic *out, int r, int ranks, int timeout_ms, int stall_ms,
                               struct err *e)
{
    struct comm_config config = {.id = shared->id,
                                 .id_size = shared->id_size,
                                 .rank = r,
                                 .world_size = ranks,
                                 .reproducible = true,
                                 .timeout_ms = timeout_ms,
                                 .stall_ms = stall_ms};

    return nccl->open(out, NULL, &config, e);
}

static struct comm *open_group(int r, int ranks)
{
    struct comm *_Atomic c = NULL;
    struct err e = {0};

    CHECK(open_with(&c, r, ranks, SOON_MS, 0, &e) == ERR_OK);
    return c;
}

static float *new_array(int r)
{
    void *p = NULL;
    float host[COUNT];

    for (int i = 0; i < COUNT; i++)
        host[i] = (float)(i % 100 + r);
    CHECK(cudaMalloc(&p, sizeof(host)) == cudaSuccess);
    CHECK(cudaMemcpyAsync(p, host, sizeof(host), cudaMemcpyHostToDevice, compute) == cudaSuccess);
    return p;
}

/* After the join, the device's stream waits for all sums that were started before. */
static void sums_check(struct comm *c, int r, int ranks)
{
    float *data = new_array(r), host[COUNT];
    struct err e = {0};

    for (int part = 2; part >= 0; part--)
        CHECK(nccl->allreduce(c, data + part * (COUNT / 3), COUNT / 3, &e) == ERR_OK);
    CHECK(nccl->broadcast(c, data, 4, ranks - 1, &e) == ERR_OK);
    CHECK(nccl->join(c, &e) == ERR_OK);
    CHECK(cudaMemcpyAsync(host, data, sizeof(host), cudaMemcpyDeviceToHost, compute) == cudaSuccess);
    while (cudaStreamQuery(compute) == cudaErrorNotReady)
        CHECK(nccl->check(c, &e) == ERR_OK);
    for (int i = 0; i < COUNT; i++)
        CHECK(host[i] == (float)(i % 100 * ranks + ranks * (ranks - 1) / 2));
    CHECK(nccl->check(c, &e) == ERR_OK);
    CHECK(cudaFree(data) == cudaSuccess);
}

static void start_sum(struct comm *c, int r)
{
    struct err e = {0};

    CHECK(nccl->allreduce(c, new_array(r), COUNT, &e) == ERR_OK);
}

/* Polls until check reports it, for a limited time. */
static void until_over(struct comm *c, int r, const char *text)
{
    struct err e = {0};
    int64_t deadline = clock_boot_ms() + SOON_MS;

    while (nccl->check(c, &e) == ERR_OK)
        CHECK(clock_boot_ms() < deadline);
    CHECK(e.code == ERR_ABORTED);
    CHECK(strstr(e.msg, text));
    CHECK(nccl->check(c, &e) == ERR_ABORTED); /* the error stays */
    CHECK(nccl->join(c, &e) == ERR_ABORTED);
}

static void close_group(struct comm *c, int r)
{
    struct err e = {0};

    CHECK(nccl->close(c, SOON_MS, &e) == ERR_OK);
}

static void fault_set(const char *name)
{
    if (name)
        setenv("DDP_STANDIN_NCCL_FAULT", name, 1);
    else
        unsetenv("DDP_STANDIN_NCCL_FAULT");
}

/* ---- ranks */

typedef void rank_fn(int r, int ranks);

static int rank_run(rank_fn *fn, int r, int ranks)
{
    alarm(60);
    if (cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking))
        return 3;
    fn(r, ranks);
    return 0;
}

/* Runs each rank in a process of its own; killed_rank (-1: none) kills itself. */
static void run_ranks(rank_fn *fn, int ranks, int killed_rank)
{
    pid_t pids[MOST_RANKS];

    memset(shared, 0, sizeof(*shared));
    fault_set(NULL);
    for (int r = 0; r < ranks; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0)
            _exit(rank_run(fn, r, ranks));
    }
    bool good = true;
    for (int r = 0; r < ranks; r++) {
        int status = 0;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        good &= r == killed_rank ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0;
    }
    assert_true(good);
}

/* ---- tests */

static void good_life(int r, int ranks)
{
    share_id(r, 1);
    struct comm *c = open_group(r, ranks);
    sums_check(c, r, ranks);
    sums_check(c, r, ranks);
    close_group(c, r);
}

static void test_ranks_sum(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++)
        run_ranks(good_life, ranks, -1);
}

/* Runs the streams in several orders: a sum that did not wait for the device's stream would read its data too
 * early. */
static void test_streams_wait_for_each_other(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 20; seed++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", seed);
        setenv("DDP_EMULATED_SEED", text, 1);
        run_ranks(good_life, 2, -1);
    }
    unsetenv("DDP_EMULATED_SEED");
}

/* Rank 1 comes late. What rank 0's device waits for it is measured on the device, because the host goes on. */
static void one_comes_late(int r, int ranks)
{
    struct err e = {0};
    int64_t until = 0, from = 0;

    share_id(r, 1);
    struct comm *c = open_group(r, ranks);
    sums_check(c, r, ranks);
    int64_t before = nccl->joined_ns(c);
    float *data = new_array(r);
    if (r == 1)
        wait_until_value(&shared->at[0], 1);
    atomic_store(&shared->at[1], r);
    CHECK(nccl->allreduce(c, data, COUNT, &e) == ERR_OK);
    CHECK(nccl->join(c, &e) == ERR_OK);
    if (r == 0) {
        CHECK(cudaStreamQuery(compute) == cudaErrorNotReady); /* the device stands still, the host does not */
        CHECK(nccl->joined_ns(c) == before);                  /* it has not passed this join */
        from = clock_mono_ns();
        atomic_store(&shared->at[0], 1);
        wait_until_value(&shared->at[1], 1);
        until = clock_mono_ns();
    }
    while (cudaStreamQuery(compute) == cudaErrorNotReady)
        CHECK(nccl->check(c, &e) == ERR_OK);
    /* Rank 1 began after `from`. The emulated device looks at the sum no earlier than after `until`. A float has the
     * milliseconds, so the last digits are lost. */
    CHECK(r != 0 || nccl->joined_ns(c) - before >= (until - from) / 100 * 99);
    CHECK(nccl->joined_ns(c) >= before);
    for (int i = 0; i < 20; i++) /* more than are measured at a time */
        CHECK(nccl->join(c, &e) == ERR_OK);
    close_group(c, r);
}

static void test_the_devices_wait_is_measured(void **state)
{
    (void)state;
    run_ranks(one_comes_late, 2, -1);
}

static void rank_dies(int r, int ranks)
{
    share_id(r, 1);
    struct comm *c = open_group(r, ranks);
    sums_check(c, r, ranks);
    if (r == ranks - 1)
        kill(getpid(), SIGKILL);
    start_sum(c, r);
    until_over(c, r, "remote process exited");
    close_group(c, r);
}

static void test_dead_peer_is_noticed(void **state)
{
    (void)state;
    run_ranks(rank_dies, 3, 2);
}

static void *abort_it(void *c)
{
    nccl->abort(c);
    return NULL;
}

/* NCCL does not notice the death, as between processes of one machine. The wait ends when another thread aborts the
 * group. The survivors then form another group in the same processes. */
static void dies_unnoticed(int r, int ranks)
{
    struct err e = {0};
    pthread_t thread;

    share_id(r, 1);
    struct comm *c = open_group(r, ranks);
    sums_check(c, r, ranks);
    if (r == ranks - 1)
        kill(getpid(), SIGKILL);
    fault_set("unnoticed-death");
    start_sum(c, r);
    CHECK(nccl->check(c, &e) == ERR_OK);
    CHECK(pthread_create(&thread, NULL, abort_it, c) == 0);
    until_over(c, r, "aborted");
    pthread_join(thread, NULL);
    close_group(c, r);
    fault_set(NULL);
    share_id(r, 2);
    c = open_group(r, ranks - 1);
    sums_check(c, r, ranks - 1);
    close_group(c, r);
}

static void test_abort_ends_waits_for_lost_peers(void **state)
{
    (void)state;
    run_ranks(dies_unnoticed, 3, 2);
}

static void rank_stalls(int r, int ranks)
{
    struct comm *_Atomic c = NULL;
    struct err e = {0};

    share_id(r, 1);
    CHECK(open_with(&c, r, ranks, SOON_MS, 50, &e) == ERR_OK);
    sums_check(c, r, ranks);
    fault_set("stall");
    start_sum(c, r);
    until_over(c, r, "has not ended within 50 ms");
    close_group(c, r);
}

static void test_stall_is_an_error(void **state)
{
    (void)state;
    run_ranks(rank_stalls, 2, -1);
}

/* Operations that each end in time are not a stall, however long all of them take together. */
static void goes_on(int r, int ranks)
{
    struct comm *_Atomic c = NULL;
    struct err e = {0};

    share_id(r, 1);
    CHECK(open_with(&c, r, ranks, SOON_MS, 400, &e) == ERR_OK);
    for (int64_t end = clock_boot_ms() + 800;;) {
        sums_check(c, r, ranks);
        /* rank 0 tells the others by a sum whether this is the last turn, so that all stop after the same one */
        float *last = new_array(r), host;
        float said = r == 0 && clock_boot_ms() >= end ? 1.0f : 0.0f;
        CHECK(cudaMemcpyAsync(last, &said, sizeof(said), cudaMemcpyHostToDevice, compute) == cudaSuccess);
        CHECK(nccl->allreduce(c, last, 1, &e) == ERR_OK && nccl->join(c, &e) == ERR_OK);
        CHECK(cudaMemcpyAsync(&host, last, sizeof(host), cudaMemcpyDeviceToHost, compute) == cudaSuccess);
        CHECK(cudaStreamSynchronize(compute) == cudaSuccess);
        cudaFree(last);
        if (host > 0.0f)
            break;
    }
    CHECK(nccl->check(c, &e) == ERR_OK);
    close_group(c, r);
}

static void test_many_operations_are_no_stall(void **state)
{
    (void)state;
    run_ranks(goes_on, 2, -1);
}

static void rank_errs(int r, int ranks)
{
    share_id(r, 1);
    struct comm *c = open_group(r, ranks);
    fault_set("async-error");
    start_sum(c, r);
    until_over(c, r, "internal error");
    close_group(c, r);
}

static void test_asynchronous_error_is_seen(void **state)
{
    (void)state;
    run_ranks(rank_errs, 2, -1);
}

/* The first sum connects to the peers, so its failure must be reported as the failure of a peer. */
static void connects_in_vain(int r, int ranks)
{
    static const struct {
        const char *fault, *text;
    } ways[] = {{"lost-connecting", "remote process exited"},
                {"late-connect", "did not finish within 50 ms"}};

    for (int i = 0; i < 2; i++) {
        struct comm *_Atomic c = NULL;
        struct err e = {0};
        share_id(r, i + 1);
        CHECK(open_with(&c, r, ranks, SOON_MS, 50, &e) == ERR_OK);
        fault_set(ways[i].fault);
        CHECK(nccl->allreduce(c, new_array(r), COUNT, &e) == ERR_ABORTED);
        CHECK(strstr(e.msg, ways[i].text));
        CHECK(nccl->check(c, &e) == ERR_ABORTED);
        close_group(c, r);
        fault_set(NULL);
        atomic_store(&shared->at[r], i + 1);
        wait_until_value(&shared->at[!r], i + 1);
    }
}

static void test_peer_lost_at_the_first_sum(void **state)
{
    (void)state;
    run_ranks(connects_in_vain, 2, -1);
}

/* A rank whose GPU has failed takes no part in sums, so its wrong values do not reach other ranks. It reports its own
 * device as the cause, not a peer. */
static void has_a_broken_device(int r, int ranks)
{
    float *data, host[COUNT];
    struct err e = {0};

    share_id(r, 1);
    struct comm *c = open_group(r, ranks);
    sums_check(c, r, ranks);
    data = new_array(r);
    device_has_error = r == 1;
    if (r == 1) {
        CHECK(nccl->allreduce(c, data, COUNT, &e) == ERR_INTERNAL && !strcmp(e.msg, "the device's own"));
        /* dev_wait reports the device's error only once, but the group stays failed */
        device_has_error = false;
        CHECK(nccl->allreduce(c, data, COUNT, &e) == ERR_INTERNAL);
    } else {
        CHECK(nccl->allreduce(c, data, COUNT, &e) == ERR_OK);
        until_over(c, r, "remote process exited");
        CHECK(cudaMemcpyAsync(host, data, sizeof(host), cudaMemcpyDeviceToHost, compute) == cudaSuccess);
        CHECK(cudaStreamSynchronize(compute) == cudaSuccess);
        for (int i = 0; i < COUNT; i++)
            CHECK(host[i] == (float)(i % 100 + r));
    }
    close_group(c, r);
}

static void test_broken_device_takes_no_part(void **state)
{
    (void)state;
    run_ranks(has_a_broken_device, 2, -1);
}

/* NCCL reports the same error whether or not the GPU is the cause. Only CUDA tells that it is the GPU. */
static void loses_its_gpu(int r, int ranks)
{
    struct err e = {0};

    share_id(r, 1);
    struct comm *c = open_group(r, ranks);
    fault_set("async-error");
    start_sum(c, r);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    if (r == 1)
        emulated_break(cudaErrorECCUncorrectable, "on purpose");
    CHECK(nccl->check(c, &e) == (r == 1 ? ERR_INTERNAL : ERR_ABORTED));
    CHECK(strstr(e.msg, r == 1 ? "cudaErrorECCUncorrectable" : "NCCL: the group has failed"));
    close_group(c, r);
}

static void test_lost_gpu_is_its_ranks_own(void **state)
{
    (void)state;
    run_ranks(loses_its_gpu, 2, -1);
}

static void ends_badly(int r, int ranks)
{
    for (int i = 1; i <= 2; i++) {
        struct err e = {0};
        share_id(r, i);
        struct comm *c = open_group(r, ranks);
        fault_set("end-fails");
        if (i == 2)
            nccl->abort(c);
        CHECK(nccl->close(c, SOON_MS, &e) == ERR_INTERNAL);
        CHECK(
            strstr(e.msg, i == 1 ? "ncclCommDestroy: unhandled system" : "ncclCommAbort: unhandled system"));
    }
}

static void test_errors_at_the_end_are_reported(void **state)
{
    (void)state;
    run_ranks(ends_badly, 1, -1);
}

struct late_abort {
    struct comm *_Atomic c;
};

static void *abort_once_there_is_one(void *arg)
{
    struct late_abort *l = arg;

    while (!atomic_load(&l->c))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    nccl->abort(l->c);
    return NULL;
}

/* Another thread aborts the group while it forms; the deadline and `watch` end it, too. */
static enum err_code watch_refuses(void *arg, struct err *e)
{
    return err_set(e, ERR_ABORTED, "%s", (const char *)arg);
}

static void forms_never(int r, int ranks)
{
    struct late_abort l = {NULL};
    struct err e = {0};
    pthread_t thread;

    fault_set("late-init");
    share_id(r, 1);
    CHECK(pthread_create(&thread, NULL, abort_once_there_is_one, &l) == 0);
    CHECK(open_with(&l.c, r, ranks, 10 * SOON_MS, 0, &e) == ERR_ABORTED);
    pthread_join(thread, NULL);
    close_group(l.c, r);

    share_id(r, 2);
    l.c = NULL;
    CHECK(open_with(&l.c, r, ranks, 20, 0, &e) == ERR_DEADLINE_EXCEEDED);
    close_group(l.c, r);

    share_id(r, 3);
    l.c = NULL;
    char why[] = "a peer is gone";
    struct comm_config config = {.id = shared->id,
                                 .id_size = shared->id_size,
                                 .rank = r,
                                 .world_size = ranks,
                                 .timeout_ms = 10 * SOON_MS,
                                 .watch = watch_refuses,
                                 .watch_arg = why};
    CHECK(nccl->open(&l.c, NULL, &config, &e) == ERR_ABORTED && !strcmp(e.msg, why));
    close_group(l.c, r);
}

static void test_forming_can_be_ended(void **state)
{
    (void)state;
    run_ranks(forms_never, 1, -1);
}

static void rank_differs(int r, int ranks)
{
    struct comm *_Atomic c = NULL;
    struct err e = {0};

    if (r == 1)
        setenv("DDP_STANDIN_NCCL_VERSION", "22808", 1);
    CHECK(nccl->version() == (r == 1 ? 22808 : 22809));
    share_id(r, 1);
    CHECK(open_with(&c, r, ranks, SOON_MS, 0, &e) == ERR_FAILED_PRECONDITION);
    CHECK(strstr(e.msg, "version"));
    close_group(c, r);
}

static void test_versions_are_not_mixed(void **state)
{
    (void)state;
    run_ranks(rank_differs, 2, -1);
}

/* If ncclCommAbort hangs, closing the group must report this in time, so that the process can exit. */
static void rank_hangs(int r, int ranks)
{
    struct err e = {0};

    share_id(r, 1);
    struct comm *c = open_group(r, ranks);
    fault_set("hang-in-abort");
    nccl->abort(c);
    int64_t began = clock_boot_ms();
    CHECK(nccl->close(c, 100, &e) == ERR_DEADLINE_EXCEEDED);
    CHECK(strstr(e.msg, "within 100 ms") && clock_boot_ms() - began >= 99); /* it waited for the whole time */
}

static void test_late_abort_is_reported(void **state)
{
    (void)state;
    run_ranks(rank_hangs, 1, -1);
}

static int count_entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    if (!d)
        return -1;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Opens and closes 100 groups. Every second one is aborted before it is closed. */
static void comm_cycle(int r, int ranks)
{
    int files = 0, threads = 0;
    size_t bytes = 0;

    for (int i = 1; i <= 100; i++) {
        share_id(r, i);
        struct comm *c = open_group(r, ranks);
        sums_check(c, r, ranks);
        if (i % 2)
            nccl->abort(c);
        close_group(c, r);
        atomic_store(&shared->at[r], i);
        wait_until_value(&shared->at[!r], i);
        if (i == 10) {
            files = count_entries("/proc/self/fd");
            threads = count_entries("/proc/self/task");
            cudaMemGetInfo(&bytes, &(size_t){0});
        }
    }
    size_t now = 0;
    cudaMemGetInfo(&now, &(size_t){0});
    CHECK(count_entries("/proc/self/fd") == files && count_entries("/proc/self/task") == threads);
    CHECK(now == bytes);
}

static void test_a_hundred_cycles_leak_nothing(void **state)
{
    (void)state;
    run_ranks(comm_cycle, 2, -1);
}

/* With reproducible: none, NCCL chooses algorithm, protocol, and the number of thread blocks. */
static void test_environment_without_an_order(void **state)
{
    (void)state;
    nccl->prepare(false);
    assert_null(getenv("NCCL_ALGO"));
    assert_null(getenv("NCCL_PROTO"));
    assert_null(getenv("NCCL_NVLS_ENABLE"));
    assert_string_equal(getenv("NCCL_RAS_ENABLE"), "0");
}

static void any_order(int r, int ranks)
{
    struct comm *_Atomic c = NULL;
    struct err e = {0};
    int blocks = -1;

    share_id(r, 1);
    for (int reproducible = 1; reproducible >= 0; reproducible--) {
        struct comm_config config = {.id = shared->id,
                                     .id_size = shared->id_size,
                                     .world_size = ranks,
                                     .reproducible = reproducible,
                                     .timeout_ms = SOON_MS};
        CHECK(nccl->open(&c, NULL, &config, &e) == ERR_OK);
        blocks = standin_blocks();
        CHECK(reproducible ? blocks == 8 : blocks == 0);
        close_group(c, r);
        share_id(r, 2);
    }
}

static void test_the_number_of_blocks_is_given_for_bits_only(void **state)
{
    (void)state;
    run_ranks(any_order, 1, -1);
}

/* Environment variables of NCCL that the user has set are not changed. */
static void test_environment(void **state)
{
    (void)state;
    setenv("NCCL_ALGO", "Tree", 1);
    nccl_environment(true);
    assert_string_equal(getenv("NCCL_ALGO"), "Tree");
    assert_string_equal(getenv("NCCL_PROTO"), "Simple");
    assert_string_equal(getenv("NCCL_RAS_ENABLE"), "0");
}

static const char *interface_at(const char *address, const char *said)
{
    unsetenv("NCCL_SOCKET_IFNAME");
    unsetenv("NCCL_SOCKET_FAMILY");
    if (said)
        setenv("NCCL_SOCKET_IFNAME", said, 1);
    setenv("DDP_NODE_ADDRESS", address, 1);
    nccl_environment(true);
    unsetenv("DDP_NODE_ADDRESS");
    return getenv("NCCL_SOCKET_IFNAME");
}

/* NCCL uses the interface of the node's address. */
static void test_interface_of_the_nodes_address(void **state)
{
    (void)state;
    assert_string_equal(interface_at("127.0.0.1", NULL), "=lo");
    assert_string_equal(getenv("NCCL_SOCKET_FAMILY"), "AF_INET");
    assert_string_equal(interface_at("127.0.0.1", "eth1"), "eth1");
    assert_null(getenv("NCCL_SOCKET_FAMILY"));
    assert_null(
        interface_at("192.0.2.1", NULL)); /* a documentation address (RFC 5737), which no interface has */
    assert_null(interface_at("localhost", NULL)); /* a host name: peers may resolve it to another address */
    assert_null(interface_at("::1", NULL));       /* NCCL does not use that interface */
    assert_null(interface_at("", NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment_without_an_order),
        cmocka_unit_test(test_the_number_of_blocks_is_given_for_bits_only),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_interface_of_the_nodes_address),
        cmocka_unit_test(test_ranks_sum),
        cmocka_unit_test(test_streams_wait_for_each_other),
        cmocka_unit_test(test_the_devices_wait_is_measured),
        cmocka_unit_test(test_dead_peer_is_noticed),
        cmocka_unit_test(test_abort_ends_waits_for_lost_peers),
        cmocka_unit_test(test_stall_is_an_error),
        cmocka_unit_test(test_many_operations_are_no_stall),
        cmocka_unit_test(test_asynchronous_error_is_seen),
        cmocka_unit_test(test_peer_lost_at_the_first_sum),
        cmocka_unit_test(test_broken_device_takes_no_part),
        cmocka_unit_test(test_lost_gpu_is_its_ranks_own),
        cmocka_unit_test(test_errors_at_the_end_are_reported),
        cmocka_unit_test(test_forming_can_be_ended),
        cmocka_unit_test(test_versions_are_not_mixed),
        cmocka_unit_test(test_late_abort_is_reported),
        cmocka_unit_test(test_a_hundred_cycles_leak_nothing),
    };

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
