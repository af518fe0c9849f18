/* Tests what the plugin's collectives over NCCL do when a peer, a device or NCCL itself fails: while a group forms, in its
 * sums, and while it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "tests/standins/cuda/emulate.h"
#include "tests/standins/nccl/nccl_ranks.h"

static const struct comm_ops *const nccl = &nccl_comm_ops;

#define CHECK(what) RANK_CHECK(r, what)

static void fault_set(const char *name)
{
    if (name)
        setenv("DDP_STANDIN_NCCL_FAULT", name, 1);
    else
        unsetenv("DDP_STANDIN_NCCL_FAULT");
}

static void start_sum(struct comm *c, int r)
{
    struct err e = {0};

    CHECK(nccl->allreduce(c, ranks_new_array(r), RANKS_COUNT, &e) == ERR_OK);
}

/* Polls until check reports it, for a limited time. */
static void until_over(struct comm *c, int r, const char *text)
{
    struct err e = {0};
    int64_t deadline = clock_boot_ms() + RANKS_SOON_MS;

    while (nccl->check(c, &e) == ERR_OK)
        CHECK(clock_boot_ms() < deadline);
    CHECK(e.code == ERR_ABORTED);
    CHECK(strstr(e.msg, text));
    CHECK(nccl->check(c, &e) == ERR_ABORTED); /* the error stays */
    CHECK(nccl->join(c, &e) == ERR_ABORTED);
}

/* ---- while a group forms */

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

static enum err_code watch_refuses(void *arg, struct err *e)
{
    return err_set(e, ERR_ABORTED, "%s", (const char *)arg);
}

/* Three ways to end the wait for a group: another thread aborts it, its deadline passes, `watch` reports an error. */
static void forms_never(int r, int ranks)
{
    struct late_abort l = {NULL};
    struct err e = {0};
    pthread_t thread;

    fault_set("late-init");
    ranks_share_id(r, 1);
    CHECK(pthread_create(&thread, NULL, abort_once_there_is_one, &l) == 0);
    CHECK(ranks_open_with(&l.c, r, ranks, 10 * RANKS_SOON_MS, 0, &e) == ERR_ABORTED);
    pthread_join(thread, NULL);
    ranks_close_group(l.c, r);

    ranks_share_id(r, 2);
    l.c = NULL;
    CHECK(ranks_open_with(&l.c, r, ranks, 20, 0, &e) == ERR_DEADLINE_EXCEEDED);
    ranks_close_group(l.c, r);

    ranks_share_id(r, 3);
    l.c = NULL;
    char why[] = "a peer is gone";
    struct comm_config config = {.id = ranks_shared->id,
                                 .id_size = ranks_shared->id_size,
                                 .rank = r,
                                 .world_size = ranks,
                                 .timeout_ms = 10 * RANKS_SOON_MS,
                                 .watch = watch_refuses,
                                 .watch_arg = why};
    CHECK(nccl->open(&l.c, NULL, &config, &e) == ERR_ABORTED && !strcmp(e.msg, why));
    ranks_close_group(l.c, r);
}

static void test_forming_can_be_ended(void **state)
{
    (void)state;
    ranks_run(forms_never, 1, -1);
}

static void rank_differs(int r, int ranks)
{
    struct comm *_Atomic c = NULL;
    struct err e = {0};

    if (r == 1)
        setenv("DDP_STANDIN_NCCL_VERSION", "22808", 1);
    CHECK(nccl->version() == (r == 1 ? 22808 : 22809));
    ranks_share_id(r, 1);
    CHECK(ranks_open_with(&c, r, ranks, RANKS_SOON_MS, 0, &e) == ERR_FAILED_PRECONDITION);
    CHECK(strstr(e.msg, "version"));
    ranks_close_group(c, r);
}

static void test_versions_are_not_mixed(void **state)
{
    (void)state;
    ranks_run(rank_differs, 2, -1);
}

/* ---- in sums */

static void rank_dies(int r, int ranks)
{
    ranks_share_id(r, 1);
    struct comm *c = ranks_open_group(r, ranks);
    ranks_check_sums(c, r, ranks);
    if (r == ranks - 1)
        kill(getpid(), SIGKILL);
    start_sum(c, r);
    until_over(c, r, "remote process exited");
    ranks_close_group(c, r);
}

static void test_dead_peer_is_noticed(void **state)
{
    (void)state;
    ranks_run(rank_dies, 3, 2);
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

    ranks_share_id(r, 1);
    struct comm *c = ranks_open_group(r, ranks);
    ranks_check_sums(c, r, ranks);
    if (r == ranks - 1)
        kill(getpid(), SIGKILL);
    fault_set("unnoticed-death");
    start_sum(c, r);
    CHECK(nccl->check(c, &e) == ERR_OK);
    CHECK(pthread_create(&thread, NULL, abort_it, c) == 0);
    until_over(c, r, "aborted");
    pthread_join(thread, NULL);
    ranks_close_group(c, r);
    fault_set(NULL);
    ranks_share_id(r, 2);
    c = ranks_open_group(r, ranks - 1);
    ranks_check_sums(c, r, ranks - 1);
    ranks_close_group(c, r);
}

static void test_abort_ends_waits_for_lost_peers(void **state)
{
    (void)state;
    ranks_run(dies_unnoticed, 3, 2);
}

static void rank_stalls(int r, int ranks)
{
    struct comm *_Atomic c = NULL;
    struct err e = {0};

    ranks_share_id(r, 1);
    CHECK(ranks_open_with(&c, r, ranks, RANKS_SOON_MS, 50, &e) == ERR_OK);
    ranks_check_sums(c, r, ranks);
    fault_set("stall");
    start_sum(c, r);
    until_over(c, r, "has not ended within 50 ms");
    ranks_close_group(c, r);
}

static void test_stall_is_an_error(void **state)
{
    (void)state;
    ranks_run(rank_stalls, 2, -1);
}

/* Operations that each end in time are not a stall, however long all of them take together. */
static void goes_on(int r, int ranks)
{
    struct comm *_Atomic c = NULL;
    struct err e = {0};

    ranks_share_id(r, 1);
    CHECK(ranks_open_with(&c, r, ranks, RANKS_SOON_MS, 400, &e) == ERR_OK);
    for (int64_t end = clock_boot_ms() + 800;;) {
        ranks_check_sums(c, r, ranks);
        /* rank 0 tells the others by a sum whether this is the last turn, so that all stop after the same one */
        float *last = ranks_new_array(r), host;
        float said = r == 0 && clock_boot_ms() >= end ? 1.0f : 0.0f;
        CHECK(cudaMemcpyAsync(last, &said, sizeof(said), cudaMemcpyHostToDevice, ranks_stream) ==
              cudaSuccess);
        CHECK(nccl->allreduce(c, last, 1, &e) == ERR_OK && nccl->join(c, &e) == ERR_OK);
        CHECK(cudaMemcpyAsync(&host, last, sizeof(host), cudaMemcpyDeviceToHost, ranks_stream) ==
              cudaSuccess);
        CHECK(cudaStreamSynchronize(ranks_stream) == cudaSuccess);
        cudaFree(last);
        if (host > 0.0f)
            break;
    }
    CHECK(nccl->check(c, &e) == ERR_OK);
    ranks_close_group(c, r);
}

static void test_many_operations_are_no_stall(void **state)
{
    (void)state;
    ranks_run(goes_on, 2, -1);
}

static void rank_errs(int r, int ranks)
{
    ranks_share_id(r, 1);
    struct comm *c = ranks_open_group(r, ranks);
    fault_set("async-error");
    start_sum(c, r);
    until_over(c, r, "internal error");
    ranks_close_group(c, r);
}

static void test_asynchronous_error_is_seen(void **state)
{
    (void)state;
    ranks_run(rank_errs, 2, -1);
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
        ranks_share_id(r, i + 1);
        CHECK(ranks_open_with(&c, r, ranks, RANKS_SOON_MS, 50, &e) == ERR_OK);
        fault_set(ways[i].fault);
        CHECK(nccl->allreduce(c, ranks_new_array(r), RANKS_COUNT, &e) == ERR_ABORTED);
        CHECK(strstr(e.msg, ways[i].text));
        CHECK(nccl->check(c, &e) == ERR_ABORTED);
        ranks_close_group(c, r);
        fault_set(NULL);
        atomic_store(&ranks_shared->at[r], i + 1);
        ranks_wait_value(&ranks_shared->at[!r], i + 1);
    }
}

static void test_peer_lost_at_the_first_sum(void **state)
{
    (void)state;
    ranks_run(connects_in_vain, 2, -1);
}

/* A rank whose GPU has failed takes no part in sums, so its wrong values do not reach other ranks. It reports its own
 * device as the cause, not a peer. */
static void has_a_broken_device(int r, int ranks)
{
    float *data, host[RANKS_COUNT];
    struct err e = {0};

    ranks_share_id(r, 1);
    struct comm *c = ranks_open_group(r, ranks);
    ranks_check_sums(c, r, ranks);
    data = ranks_new_array(r);
    ranks_device_has_error = r == 1;
    if (r == 1) {
        CHECK(nccl->allreduce(c, data, RANKS_COUNT, &e) == ERR_INTERNAL &&
              !strcmp(e.msg, "the device's own"));
        /* dev_wait reports the device's error only once, but the group stays failed */
        ranks_device_has_error = false;
        CHECK(nccl->allreduce(c, data, RANKS_COUNT, &e) == ERR_INTERNAL);
    } else {
        CHECK(nccl->allreduce(c, data, RANKS_COUNT, &e) == ERR_OK);
        until_over(c, r, "remote process exited");
        CHECK(cudaMemcpyAsync(host, data, sizeof(host), cudaMemcpyDeviceToHost, ranks_stream) == cudaSuccess);
        CHECK(cudaStreamSynchronize(ranks_stream) == cudaSuccess);
        for (int i = 0; i < RANKS_COUNT; i++)
            CHECK(host[i] == (float)(i % 100 + r));
    }
    ranks_close_group(c, r);
}

static void test_broken_device_takes_no_part(void **state)
{
    (void)state;
    ranks_run(has_a_broken_device, 2, -1);
}

/* NCCL reports the same error whether or not the GPU is the cause. Only CUDA tells that it is the GPU. */
static void loses_its_gpu(int r, int ranks)
{
    struct err e = {0};

    ranks_share_id(r, 1);
    struct comm *c = ranks_open_group(r, ranks);
    fault_set("async-error");
    start_sum(c, r);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    if (r == 1)
        emulated_break(cudaErrorECCUncorrectable, "on purpose");
    CHECK(nccl->check(c, &e) == (r == 1 ? ERR_INTERNAL : ERR_ABORTED));
    CHECK(strstr(e.msg, r == 1 ? "cudaErrorECCUncorrectable" : "NCCL: the group has failed"));
    ranks_close_group(c, r);
}

static void test_lost_gpu_is_its_ranks_own(void **state)
{
    (void)state;
    ranks_run(loses_its_gpu, 2, -1);
}

/* ---- while a group ends */

static void ends_badly(int r, int ranks)
{
    for (int i = 1; i <= 2; i++) {
        struct err e = {0};
        ranks_share_id(r, i);
        struct comm *c = ranks_open_group(r, ranks);
        fault_set("end-fails");
        if (i == 2)
            nccl->abort(c);
        CHECK(nccl->close(c, RANKS_SOON_MS, &e) == ERR_INTERNAL);
        CHECK(
            strstr(e.msg, i == 1 ? "ncclCommDestroy: unhandled system" : "ncclCommAbort: unhandled system"));
    }
}

static void test_errors_at_the_end_are_reported(void **state)
{
    (void)state;
    ranks_run(ends_badly, 1, -1);
}

/* If ncclCommAbort hangs, closing the group must report this in time, so that the process can exit. */
static void rank_hangs(int r, int ranks)
{
    struct err e = {0};

    ranks_share_id(r, 1);
    struct comm *c = ranks_open_group(r, ranks);
    fault_set("hang-in-abort");
    nccl->abort(c);
    int64_t began = clock_boot_ms();
    CHECK(nccl->close(c, 100, &e) == ERR_DEADLINE_EXCEEDED);
    CHECK(strstr(e.msg, "within 100 ms") && clock_boot_ms() - began >= 99); /* it waited for the whole time */
}

static void test_late_abort_is_reported(void **state)
{
    (void)state;
    ranks_run(rank_hangs, 1, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forming_can_be_ended),
        cmocka_unit_test(test_versions_are_not_mixed),
        cmocka_unit_test(test_dead_peer_is_noticed),
        cmocka_unit_test(test_abort_ends_waits_for_lost_peers),
        cmocka_unit_test(test_stall_is_an_error),
        cmocka_unit_test(test_many_operations_are_no_stall),
        cmocka_unit_test(test_asynchronous_error_is_seen),
        cmocka_unit_test(test_peer_lost_at_the_first_sum),
        cmocka_unit_test(test_broken_device_takes_no_part),
        cmocka_unit_test(test_lost_gpu_is_its_ranks_own),
        cmocka_unit_test(test_errors_at_the_end_are_reported),
        cmocka_unit_test(test_late_abort_is_reported),
    };

    return cmocka_run_group_tests(tests, ranks_setup, NULL);
}
