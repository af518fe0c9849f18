/* Ends a communicator. The orderly end is: wait until nothing is in flight, finalize (NCCL synchronizes with all
 * peers), and destroy. If that fails, the communicator is aborted. Destroy and abort may both wait for ever inside
 * NCCL, for its threads or its kernels. So a separate thread calls them. If that thread does not return in time, it is
 * left behind, and the process must exit. */
#include "trainer/device/cuda/nccl/nccl_close.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/device/cuda/nccl/nccl_join.h"
#include "trainer/device/cuda/nccl/nccl_wait.h"

/* A call of NCCL in a separate thread. Shared with the thread; the last user frees it. */
struct errand {
    const struct nccl_library *lib;
    ncclComm_t nccl;
    bool force;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done; /* the thread has returned from NCCL */
    bool left; /* the owner waits no longer, so the thread frees this */
    ncclResult_t result;
};

static void errand_free(struct errand *r)
{
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    free(r);
}

static void *errand_main(void *arg)
{
    struct errand *r = arg;
    ncclResult_t rc = r->force ? r->lib->abort(r->nccl) : r->lib->destroy(r->nccl);
    bool left;

    pthread_mutex_lock(&r->lock);
    r->result = rc;
    r->done = true;
    left = r->left;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (left)
        errand_free(r);
    return NULL;
}

static struct errand *errand_create(const struct comm *c, bool force)
{
    struct errand *r = xcalloc(1, sizeof(*r));
    pthread_condattr_t how;

    r->lib = c->lib;
    r->nccl = c->nccl;
    r->force = force;
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&how);
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &how);
    pthread_condattr_destroy(&how);
    return r;
}

/* The thread blocks all signals, because other threads handle them. */
static int errand_start(pthread_t *thread, struct errand *r)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(thread, NULL, errand_main, r);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

/* Returns whether the thread returned in time. If it did not, the thread will free r. */
static bool errand_await(struct errand *r, int timeout_ms)
{
    struct timespec until;
    int rc = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_mutex_lock(&r->lock);
    while (!r->done && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&r->changed, &r->lock, &until);
    bool done = r->done;
    r->left = !done; /* under the lock: exactly one of the two frees r */
    pthread_mutex_unlock(&r->lock);
    return done;
}

/* Returns false if NCCL did not return in time, or if no thread could be started. Else *answer is NCCL's result. */
static bool send_errand(const struct comm *c, bool force, int timeout_ms, ncclResult_t *answer)
{
    struct errand *r = errand_create(c, force);
    pthread_t thread;

    if (errand_start(&thread, r)) {
        errand_free(r);
        return false;
    }
    if (!errand_await(r, timeout_ms)) {
        pthread_detach(thread);
        return false;
    }
    pthread_join(thread, NULL);
    *answer = r->result;
    errand_free(r);
    return true;
}

/* ---- closing */

/* Waits until nothing is left on the stream. Returns false after an error or the deadline. */
static bool comm_drain(struct comm *c, int64_t deadline)
{
    struct err e = {0};
    unsigned tries = 0;

    for (;;) {
        cudaError_t rc = cudaStreamQuery(c->stream);

        if (rc == cudaSuccess)
            return true;
        if (rc != cudaErrorNotReady || nccl_check(c, &e) || clock_boot_ms() >= deadline)
            return false;
        (void)cudaGetLastError(); /* CUDA remembers "not ready" as an error */
        nccl_nap(&tries);
    }
}

static int left_until(int64_t deadline)
{
    int64_t left = deadline - clock_boot_ms();

    return left > 0 ? (int)left : 0;
}

/* Waits for the operations in flight and finalizes. Returns false if the communicator has to be aborted instead. */
static bool comm_finish(struct comm *c, int timeout_ms)
{
    int64_t deadline = clock_boot_ms() + timeout_ms;
    struct err e = {0};

    if (nccl_check(c, &e) || !comm_drain(c, deadline))
        return false;
    return nccl_settle(c, c->lib->finalize(c->nccl), left_until(deadline), "finalizing the group", &e) ==
           ERR_OK;
}

static void comm_release(struct comm *c)
{
    const cudaEvent_t events[] = {c->before, c->after, c->mark, c->passed};

    for (size_t i = 0; i < ARRAY_LEN(events); i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    nccl_join_release(c);
    if (c->stream)
        cudaStreamDestroy(c->stream);
    cudaFree(c->room);
    (void)cudaGetLastError();
}

/* A peer that leaves now has finished as well, so `watch` is no longer called. Half of the time is for the orderly end,
 * the rest for the abort. */
enum err_code nccl_close(struct comm *c, int timeout_ms, struct err *e)
{
    int64_t deadline = clock_boot_ms() + timeout_ms;
    const struct nccl_library *lib = c->lib;
    ncclResult_t answer = ncclSuccess;
    bool in_time = true, force = false;

    c->watch = NULL;
    if (c->nccl) {
        force = !comm_finish(c, timeout_ms / 2);
        in_time = send_errand(c, force, left_until(deadline), &answer);
    }
    if (in_time)
        comm_release(c); /* else NCCL's kernels may still run, so their stream must stay */
    free(c);
    if (!in_time)
        return err_set(e, ERR_DEADLINE_EXCEEDED, "NCCL: the group did not close within %d ms", timeout_ms);
    if (answer != ncclSuccess && answer != ncclInProgress) {
        nccl_error(lib, NULL, answer, force ? "ncclCommAbort" : "ncclCommDestroy", e);
        return e->code = ERR_INTERNAL; /* nccl_error would blame a peer, but the group no longer exists */
    }
    return ERR_OK;
}
