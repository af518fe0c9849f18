/* Tests the plugin's collectives over NCCL (trainer/device/cuda/nccl) with the stand-in: sums, streams, and many groups
 * one after the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/standins/nccl/nccl.h"
#include "tests/standins/nccl/nccl_ranks.h"
#include "trainer/device/cuda/nccl/nccl_wait.h"

static const struct comm_ops *const nccl = &nccl_comm_ops;

#define CHECK(what) RANK_CHECK(r, what)

static void good_life(int r, int ranks)
{
    ranks_share_id(r, 1);
    struct comm *c = ranks_open_group(r, ranks);
    ranks_check_sums(c, r, ranks);
    ranks_check_sums(c, r, ranks);
    ranks_close_group(c, r);
}

static void test_ranks_sum(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++)
        ranks_run(good_life, ranks, -1);
}

/* Sums by parts, and brings the parts together. kind 0: equal parts; 1: unlike ones, some of them empty; 2, 3: as bf16, which
 * rounds numbers between 512 and 1,024 by up to 2. */
static void check_parts(struct comm *c, int r, int ranks, int how)
{
    const int kind = how % 2;
    const float off = how / 2 ? 8.0f : 0.0f;
    float *data = ranks_new_array(r), host[RANKS_COUNT];
    size_t offsets[RANKS_MOST + 1], count = kind ? RANKS_COUNT : (size_t)(RANKS_COUNT / ranks * ranks);
    struct err e = {0};

    for (int k = 0; k <= ranks; k++)
        offsets[k] = kind ? (size_t)(k / 2 * 2) * count / (size_t)ranks : (size_t)k * count / (size_t)ranks;
    offsets[ranks] = count;
    CHECK((how / 2 ? nccl->reduce_scatter_bf16 : nccl->reduce_scatter)(c, data, offsets, &e) == ERR_OK);
    CHECK(nccl->join(c, &e) == ERR_OK);
    CHECK(cudaMemcpyAsync(host, data, sizeof(host), cudaMemcpyDeviceToHost, ranks_stream) == cudaSuccess);
    while (cudaStreamQuery(ranks_stream) == cudaErrorNotReady)
        CHECK(nccl->check(c, &e) == ERR_OK);
    for (size_t i = offsets[r]; i < offsets[r + 1]; i++)
        CHECK(fabs(host[i] - (float)((int)i % 100 * ranks + ranks * (ranks - 1) / 2)) <= off);
    CHECK(nccl->gather(c, data, offsets, offsets + 1, &e) == ERR_OK);
    CHECK(nccl->join(c, &e) == ERR_OK);
    CHECK(cudaMemcpyAsync(host, data, sizeof(host), cudaMemcpyDeviceToHost, ranks_stream) == cudaSuccess);
    while (cudaStreamQuery(ranks_stream) == cudaErrorNotReady)
        CHECK(nccl->check(c, &e) == ERR_OK);
    for (size_t i = 0; i < count; i++)
        CHECK(fabs(host[i] - (float)((int)i % 100 * ranks + ranks * (ranks - 1) / 2)) <= off);
    CHECK(cudaFree(data) == cudaSuccess);
}

static void life_by_parts(int r, int ranks)
{
    ranks_sum_bf16 = true;
    ranks_share_id(r, 1);
    struct comm *c = ranks_open_group(r, ranks);
    check_parts(c, r, ranks, 1); /* the first operation, which connects, is a group of several */
    check_parts(c, r, ranks, 0);
    check_parts(c, r, ranks, 2);
    check_parts(c, r, ranks, 3);
    ranks_check_sums(c, r, ranks);
    check_parts(c, r, ranks, 1);
    ranks_close_group(c, r);
}

static void test_ranks_sum_by_parts(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks += ranks < 4 ? 1 : 4)
        ranks_run(life_by_parts, ranks, -1);
}

/* A sum as bf16 that does not fit into the memory for it is taken in pieces. The cut between two parts lies in the second one. */
static void sum_of_pieces(int r, int ranks)
{
    enum { MANY = NCCL_ROOM + 3000, CUT = NCCL_ROOM + 1000 };
    static const size_t offsets[] = {0, CUT, MANY};
    const size_t lo = offsets[r], count = offsets[r + 1] - lo;
    float *host = malloc(MANY * sizeof(*host));
    void *data = NULL;
    struct err e = {0};

    ranks_sum_bf16 = true;
    ranks_share_id(r, 1);
    struct comm *c = ranks_open_group(r, ranks);
    for (size_t i = 0; i < MANY; i++)
        host[i] = (float)(i % 101 + (size_t)r);
    CHECK(cudaMalloc(&data, MANY * sizeof(*host)) == cudaSuccess);
    CHECK(cudaMemcpyAsync(data, host, MANY * sizeof(*host), cudaMemcpyHostToDevice, ranks_stream) ==
          cudaSuccess);
    CHECK(nccl->reduce_scatter_bf16(c, data, offsets, &e) == ERR_OK);
    CHECK(nccl->join(c, &e) == ERR_OK);
    CHECK(cudaMemcpyAsync(host, (float *)data + lo, count * sizeof(*host), cudaMemcpyDeviceToHost,
                          ranks_stream) == cudaSuccess);
    while (cudaStreamQuery(ranks_stream) == cudaErrorNotReady)
        CHECK(nccl->check(c, &e) == ERR_OK);
    for (size_t i = 0; i < count; i++)
        CHECK(host[i] == (float)((lo + i) % 101 * 2 + 1));
    CHECK(cudaFree(data) == cudaSuccess);
    free(host);
    ranks_close_group(c, r);
}

static void test_large_sums_as_bf16_come_in_pieces(void **state)
{
    (void)state;
    ranks_run(sum_of_pieces, 2, -1);
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
        ranks_run(good_life, 2, -1);
    }
    unsetenv("DDP_EMULATED_SEED");
}

/* Rank 1 comes late. What rank 0's device waits for it is measured on the device, because the host goes on. */
static void one_comes_late(int r, int ranks)
{
    struct err e = {0};
    int64_t until = 0, from = 0;

    ranks_share_id(r, 1);
    struct comm *c = ranks_open_group(r, ranks);
    ranks_check_sums(c, r, ranks);
    int64_t before = nccl->joined_ns(c);
    float *data = ranks_new_array(r);
    if (r == 1)
        ranks_wait_value(&ranks_shared->at[0], 1);
    atomic_store(&ranks_shared->at[1], r);
    CHECK(nccl->allreduce(c, data, RANKS_COUNT, &e) == ERR_OK);
    CHECK(nccl->join(c, &e) == ERR_OK);
    if (r == 0) {
        CHECK(cudaStreamQuery(ranks_stream) ==
              cudaErrorNotReady);            /* the device stands still, the host does not */
        CHECK(nccl->joined_ns(c) == before); /* it has not passed this join */
        from = clock_mono_ns();
        atomic_store(&ranks_shared->at[0], 1);
        ranks_wait_value(&ranks_shared->at[1], 1);
        until = clock_mono_ns();
    }
    while (cudaStreamQuery(ranks_stream) == cudaErrorNotReady)
        CHECK(nccl->check(c, &e) == ERR_OK);
    /* Rank 1 began after `from`. The emulated device looks at the sum no earlier than after `until`. A float has the
     * milliseconds, so the last digits are lost. */
    CHECK(r != 0 || nccl->joined_ns(c) - before >= (until - from) / 100 * 99);
    CHECK(nccl->joined_ns(c) >= before);
    for (int i = 0; i < 20; i++) /* more than are measured at a time */
        CHECK(nccl->join(c, &e) == ERR_OK);
    ranks_close_group(c, r);
}

static void test_the_devices_wait_is_measured(void **state)
{
    (void)state;
    ranks_run(one_comes_late, 2, -1);
}

static void any_order(int r, int ranks)
{
    struct comm *_Atomic c = NULL;
    struct err e = {0};
    int blocks = -1;

    ranks_share_id(r, 1);
    for (int reproducible = 1; reproducible >= 0; reproducible--) {
        struct comm_config config = {.id = ranks_shared->id,
                                     .id_size = ranks_shared->id_size,
                                     .world_size = ranks,
                                     .reproducible = reproducible,
                                     .timeout_ms = RANKS_SOON_MS};
        CHECK(nccl->open(&c, NULL, &config, &e) == ERR_OK);
        blocks = standin_blocks();
        CHECK(reproducible ? blocks == 8 : blocks == 0);
        ranks_close_group(c, r);
        ranks_share_id(r, 2);
    }
}

static void test_the_number_of_blocks_is_given_for_bits_only(void **state)
{
    (void)state;
    ranks_run(any_order, 1, -1);
}

/* A large group meets at several ids. Here two ranks are as many as they say. */
static void meets_at_ids(int r, int ranks)
{
    static const struct {
        int told, ids;
    } rows[] = {{256, 1}, {257, 2}, {600, 3}, {100000, 32}};

    for (int i = 0; i < (int)(sizeof(rows) / sizeof(*rows)); i++) {
        ranks_told = rows[i].told;
        ranks_share_id(r, i + 1);
        struct comm *c = ranks_open_group(r, ranks);
        CHECK(standin_ids() == rows[i].ids);
        ranks_check_sums(c, r, ranks);
        ranks_close_group(c, r);
        atomic_store(&ranks_shared->at[r], i + 1);
        ranks_wait_value(&ranks_shared->at[!r], i + 1);
    }
}

static void test_large_groups_meet_at_several_ids(void **state)
{
    (void)state;
    ranks_run(meets_at_ids, 2, -1);
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

/* Opens and closes 100 groups, with memory for sums as bf16. Every second one is aborted before it is closed. */
static void comm_cycle(int r, int ranks)
{
    int files = 0, threads = 0;
    size_t bytes = 0;

    ranks_sum_bf16 = true;
    for (int i = 1; i <= 100; i++) {
        ranks_share_id(r, i);
        struct comm *c = ranks_open_group(r, ranks);
        ranks_check_sums(c, r, ranks);
        check_parts(c, r, ranks, 2);
        if (i % 2)
            nccl->abort(c);
        ranks_close_group(c, r);
        atomic_store(&ranks_shared->at[r], i);
        ranks_wait_value(&ranks_shared->at[!r], i);
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
    ranks_run(comm_cycle, 2, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_groups_meet_at_several_ids),
        cmocka_unit_test(test_the_number_of_blocks_is_given_for_bits_only),
        cmocka_unit_test(test_ranks_sum),
        cmocka_unit_test(test_ranks_sum_by_parts),
        cmocka_unit_test(test_large_sums_as_bf16_come_in_pieces),
        cmocka_unit_test(test_streams_wait_for_each_other),
        cmocka_unit_test(test_the_devices_wait_is_measured),
        cmocka_unit_test(test_a_hundred_cycles_leak_nothing),
    };

    return cmocka_run_group_tests(tests, ranks_setup, NULL);
}
