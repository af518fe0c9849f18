/* Times algorithms of matrix products: see gemm_time.h. */
#include "trainer/device/cuda/gemm_time.h"
#include "trainer/device/cuda/error.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/device/cuda/cuda.h"

enum { TIMED_RUNS = 3, ROOMS = 64, PATIENCE_MS = 5000 };

struct gemm_timer {
    cudaStream_t stream;
    cudaEvent_t from, to;
    void *rooms[ROOMS], *room; /* all workspaces; the last and largest */
    int count;
    size_t room_bytes, bytes; /* of the last; of all together */
    bool late;                /* a run did not end in time: nothing is measured any more */
};

enum err_code gemm_timer_open(struct gemm_timer **out, struct err *e)
{
    struct gemm_timer *t = xcalloc(1, sizeof(*t));
    cudaError_t code = cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking);
    if (code == cudaSuccess)
        code = cudaEventCreate(&t->from);
    if (code == cudaSuccess)
        code = cudaEventCreate(&t->to);
    if (code != cudaSuccess) {
        cuda_error(code, "timing matrix products", e);
        gemm_timer_close(t);
        return e->code;
    }
    *out = t;
    return ERR_OK;
}

void gemm_timer_close(struct gemm_timer *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->count; i++)
        (void)cudaFree(t->rooms[i]);
    if (t->from)
        (void)cudaEventDestroy(t->from);
    if (t->to)
        (void)cudaEventDestroy(t->to);
    if (t->stream)
        (void)cudaStreamDestroy(t->stream);
    (void)cudaGetLastError();
    free(t);
}

size_t gemm_timer_bytes(const struct gemm_timer *t)
{
    return t ? t->bytes : 0;
}

static bool timer_grow_room(struct gemm_timer *t, size_t bytes)
{
    void *room = NULL;
    if (bytes <= t->room_bytes)
        return true;
    if (t->count == ROOMS || cudaMalloc(&room, bytes) != cudaSuccess)
        return false;
    t->rooms[t->count++] = room;
    t->room = room;
    t->room_bytes = bytes;
    t->bytes += bytes;
    return cudaMemsetAsync(room, 0, bytes, t->stream) == cudaSuccess;
}

/* Waits until the last run has ended. Returns false on an error or after PATIENCE_MS. */
static bool is_through(struct gemm_timer *t)
{
    int64_t deadline = clock_mono_ns() + (int64_t)PATIENCE_MS * 1000000;
    for (;;) {
        cudaError_t code = cudaEventQuery(t->to);
        if (code != cudaErrorNotReady)
            return code == cudaSuccess;
        (void)cudaGetLastError(); /* CUDA remembers "not ready" as an error */
        t->late = clock_mono_ns() >= deadline;
        if (t->late)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

static size_t align_bytes(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Returns the milliseconds of TIMED_RUNS runs after one that is not counted; negative if the algorithm fails. */
static float time_one(struct gemm_timer *t, const struct gemm_trial *trial, int way)
{
    char *aux = (char *)t->room + align_bytes(trial->result), *workspace = aux + align_bytes(trial->aux);
    float ms = -1.0f;
    for (int i = 0; i <= TIMED_RUNS; i++) {
        if (i == 1 && cudaEventRecord(t->from, t->stream) != cudaSuccess)
            return -1.0f;
        if (!trial->run(trial->arg, way, t->room, aux, workspace, t->stream))
            return -1.0f;
    }
    if (cudaEventRecord(t->to, t->stream) != cudaSuccess || !is_through(t) ||
        cudaEventElapsedTime(&ms, t->from, t->to) != cudaSuccess)
        return -1.0f;
    return ms;
}

int gemm_timer_fastest(struct gemm_timer *t, const struct gemm_trial *trial)
{
    float best = -1.0f;
    int at = 0;
    bool ready = timer_grow_room(t, align_bytes(trial->result) + align_bytes(trial->aux) +
                                        align_bytes(trial->workspace));
    for (int i = 0; ready && !t->late && i < trial->count; i++) {
        float ms = time_one(t, trial, i);
        if (ms >= 0.0f && (best < 0.0f || ms < best)) {
            best = ms;
            at = i;
        }
    }
    (void)cudaGetLastError(); /* an algorithm that failed is not an error of the device */
    return at;
}
