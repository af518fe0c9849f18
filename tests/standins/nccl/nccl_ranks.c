#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "tests/standins/nccl/nccl_ranks.h"

struct ranks_shared *ranks_shared;
cudaStream_t ranks_stream;
bool ranks_sum_bf16;
bool ranks_device_has_error;
int ranks_told = 2;

static const struct comm_ops *const nccl = &nccl_comm_ops;

#define CHECK(what) RANK_CHECK(r, what)

/* ---- what the collectives need of the plugin */

cudaStream_t cuda_stream(struct device *d)
{
    (void)d;
    return ranks_stream;
}

enum err_code cuda_first_error(struct device *d, struct err *e)
{
    (void)d;
    return ranks_device_has_error ? err_set(e, ERR_INTERNAL, "the device's own") : ERR_OK;
}

/* ---- a rank */

void ranks_wait_value(const atomic_int *what, int value)
{
    for (int64_t deadline = clock_boot_ms() + 4 * RANKS_SOON_MS; atomic_load(what) < value;) {
        if (clock_boot_ms() > deadline)
            _exit(2);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

void ranks_share_id(int r, int number)
{
    struct err e = {0};

    if (r == 0) {
        CHECK(nccl->make_id(ranks_told, ranks_shared->id, sizeof(ranks_shared->id), &ranks_shared->id_size,
                            &e) == ERR_OK);
        atomic_store(&ranks_shared->id_made, number);
    }
    ranks_wait_value(&ranks_shared->id_made, number);
}

enum err_code ranks_open_with(struct comm *_Atomic *out, int r, int ranks, int timeout_ms, int stall_ms,
                              struct err *e)
{
    struct comm_config config = {.id = ranks_shared->id,
                                 .id_size = ranks_shared->id_size,
                                 .rank = r,
                                 .world_size = ranks,
                                 .reproducible = true,
                                 .bf16 = ranks_sum_bf16,
                                 .timeout_ms = timeout_ms,
                                 .stall_ms = stall_ms};

    return nccl->open(out, NULL, &config, e);
}

struct comm *ranks_open_group(int r, int ranks)
{
    struct comm *_Atomic c = NULL;
    struct err e = {0};

    CHECK(ranks_open_with(&c, r, ranks, RANKS_SOON_MS, 0, &e) == ERR_OK);
    return c;
}

void ranks_close_group(struct comm *c, int r)
{
    struct err e = {0};

    CHECK(nccl->close(c, RANKS_SOON_MS, &e) == ERR_OK);
}

float *ranks_new_array(int r)
{
    void *p = NULL;
    float host[RANKS_COUNT];

    for (int i = 0; i < RANKS_COUNT; i++)
        host[i] = (float)(i % 100 + r);
    CHECK(cudaMalloc(&p, sizeof(host)) == cudaSuccess);
    CHECK(cudaMemcpyAsync(p, host, sizeof(host), cudaMemcpyHostToDevice, ranks_stream) == cudaSuccess);
    return p;
}

/* After the join, the device's stream waits for all sums that were started before. */
void ranks_check_sums(struct comm *c, int r, int ranks)
{
    float *data = ranks_new_array(r), host[RANKS_COUNT];
    struct err e = {0};

    for (int part = 2; part >= 0; part--)
        CHECK(nccl->allreduce(c, data + part * (RANKS_COUNT / 3), RANKS_COUNT / 3, &e) == ERR_OK);
    CHECK(nccl->broadcast(c, data, 4, ranks - 1, &e) == ERR_OK);
    CHECK(nccl->join(c, &e) == ERR_OK);
    CHECK(cudaMemcpyAsync(host, data, sizeof(host), cudaMemcpyDeviceToHost, ranks_stream) == cudaSuccess);
    while (cudaStreamQuery(ranks_stream) == cudaErrorNotReady)
        CHECK(nccl->check(c, &e) == ERR_OK);
    for (int i = 0; i < RANKS_COUNT; i++)
        CHECK(host[i] == (float)(i % 100 * ranks + ranks * (ranks - 1) / 2));
    CHECK(nccl->check(c, &e) == ERR_OK);
    CHECK(cudaFree(data) == cudaSuccess);
}

/* ---- ranks */

int ranks_setup(void **state)
{
    (void)state;
    ranks_shared =
        mmap(NULL, sizeof(*ranks_shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return ranks_shared == MAP_FAILED;
}

static int process_run(void (*fn)(int r, int ranks), int r, int ranks)
{
    alarm(60);
    if (cudaStreamCreateWithFlags(&ranks_stream, cudaStreamNonBlocking))
        return 3;
    fn(r, ranks);
    return 0;
}

void ranks_run(void (*fn)(int r, int ranks), int ranks, int killed_rank)
{
    pid_t pids[RANKS_MOST];

    memset(ranks_shared, 0, sizeof(*ranks_shared));
    unsetenv("DDP_STANDIN_NCCL_FAULT");
    for (int r = 0; r < ranks; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0)
            _exit(process_run(fn, r, ranks));
    }
    bool good = true;
    for (int r = 0; r < ranks; r++) {
        int status = 0;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        good &= r == killed_rank ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0;
    }
    assert_true(good);
}
