/* Times ways to compute a product: see gemm_time.h. */
#include "trainer/device/cuda/gemm/gemm_time.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/device/cuda/error.h"

enum { PATIENCE_MS = 60000 }; /* a way that takes longer than this is broken, or the GPU is */

struct gemm_timer {
    cudaStream_t stream;                   /* the device's */
    cudaEvent_t mark[GEMM_TIMED_RUNS + 1]; /* before the first timed run, and after each */
    bool late;                             /* a run did not end in time, so nothing more is measured */
};

enum err_code gemm_timer_open(struct gemm_timer **out, cudaStream_t stream, struct err *e)
{
    struct gemm_timer *t = xcalloc(1, sizeof(*t));
    cudaError_t code = cudaSuccess;
    t->stream = stream;
    for (int i = 0; code == cudaSuccess && i <= GEMM_TIMED_RUNS; i++)
        code = cudaEventCreate(&t->mark[i]);
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
    for (int i = 0; i <= GEMM_TIMED_RUNS; i++)
        if (t->mark[i])
            (void)cudaEventDestroy(t->mark[i]);
    (void)cudaGetLastError();
    free(t);
}

/* Waits until the last run has ended. Returns false on an error or after PATIENCE_MS. */
static bool is_through(struct gemm_timer *t)
{
    int64_t deadline = clock_mono_ns() + (int64_t)PATIENCE_MS * 1000000;
    for (;;) {
        cudaError_t code = cudaEventQuery(t->mark[GEMM_TIMED_RUNS]);
        if (code != cudaErrorNotReady)
            return code == cudaSuccess;
        (void)cudaGetLastError(); /* CUDA remembers "not ready" as an error */
        t->late = clock_mono_ns() >= deadline;
        if (t->late)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Returns the median in milliseconds; negative if this way fails. */
static float time_way(struct gemm_timer *t, int way, gemm_way_fn *run, void *arg)
{
    float ms[GEMM_TIMED_RUNS];
    if (!run(arg, way, t->stream))
        return -1.0f;
    for (int i = 0; i <= GEMM_TIMED_RUNS; i++)
        if ((i > 0 && !run(arg, way, t->stream)) || cudaEventRecord(t->mark[i], t->stream) != cudaSuccess)
            return -1.0f;
    if (!is_through(t))
        return -1.0f;
    for (int i = 0; i < GEMM_TIMED_RUNS; i++)
        if (cudaEventElapsedTime(&ms[i], t->mark[i], t->mark[i + 1]) != cudaSuccess)
            return -1.0f;
    qsort(ms, GEMM_TIMED_RUNS, sizeof(ms[0]), compare_floats);
    return ms[GEMM_TIMED_RUNS / 2];
}

int gemm_timer_fastest(struct gemm_timer *t, int count, gemm_way_fn *run, void *arg)
{
    float best = -1.0f;
    int at = 0;
    for (int i = 0; !t->late && i < count; i++) {
        float ms = time_way(t, i, run, arg);
        if (ms >= 0.0f && (best < 0.0f || ms < best)) {
            best = ms;
            at = i;
        }
    }
    (void)cudaGetLastError(); /* a way that failed is not an error of the device */
    return at;
}
