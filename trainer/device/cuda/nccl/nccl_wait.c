/* NCCL's state: its errors as struct err, waits with a deadline, and operations that do not end. */
#include "trainer/device/cuda/nccl/nccl_wait.h"
#include "trainer/device/cuda/error.h"

#include <time.h>

#include "base/clock.h"
#include "trainer/device/cuda/cuda.h"

/* ---- errors, translated */

static enum err_code nccl_error_code(ncclResult_t rc)
{
    switch (rc) {
    case ncclInvalidArgument:
    case ncclInvalidUsage: /* for example NCCL versions that differ: a retry would fail again */
        return ERR_FAILED_PRECONDITION;
    case ncclSystemError: /* no interface, no libnvidia-ml, /dev/shm is full: a fault of this machine, not of a peer */
    case ncclUnhandledCudaError:
        return ERR_INTERNAL;
    default: /* a peer or the network may be the cause */
        return ERR_UNAVAILABLE;
    }
}

enum err_code nccl_error(const struct nccl_library *lib, ncclComm_t c, ncclResult_t rc, const char *what,
                         struct err *e)
{
    const char *last = lib->last_error(c);

    return err_set(e, nccl_error_code(rc), "NCCL: %s: %s%s%.120s", what, lib->error_text(rc),
                   last && *last ? ": " : "", last ? last : "");
}

/* An error of CUDA concerns this process only, so it never becomes UNAVAILABLE, which would suggest a peer. */
enum err_code nccl_cuda_error(cudaError_t rc, const char *what, struct err *e)
{
    enum err_code code = cuda_error(rc, what, e);

    return e->code = code == ERR_RESOURCE_EXHAUSTED ? code : ERR_INTERNAL;
}

enum err_code nccl_keep_error(struct comm *c, const struct err *e)
{
    if (!c->first_error.code)
        c->first_error = *e;
    return e->code;
}

/* A dead peer can cause any error of NCCL. Once the group was formed it is the likeliest cause, so the code is ABORTED;
 * the peer's own failure is reported by the peer's node. The exception is an error of this process's GPU, which CUDA
 * reports on the stream. */
static enum err_code comm_fail(struct comm *c, ncclResult_t rc, const char *what, struct err *e)
{
    cudaError_t own = cudaStreamQuery(c->stream);

    if (own != cudaSuccess && own != cudaErrorNotReady)
        return nccl_cuda_error(own, "NCCL's stream", e);
    (void)cudaGetLastError(); /* CUDA remembers "not ready" as an error */
    nccl_error(c->lib, c->nccl, rc, what, e);
    if (c->formed)
        e->code = ERR_ABORTED;
    return e->code;
}

static enum err_code comm_fail_late(const struct comm *c, int timeout_ms, const char *what, struct err *e)
{
    if (c->formed)
        return err_set(e, ERR_ABORTED, "NCCL: %s: did not finish within %d ms: a peer hangs or has died",
                       what, timeout_ms);
    return err_set(e, ERR_DEADLINE_EXCEEDED, "NCCL: %s: did not finish within %d ms", what, timeout_ms);
}

/* ---- waits */

void nccl_nap(unsigned *tries)
{
    struct timespec nap = {.tv_nsec = *tries < 20 ? 20000 : 1000000};

    if ((*tries)++ >= 4) /* most calls finish at once */
        nanosleep(&nap, NULL);
}

static enum err_code comm_fail_aborted(struct err *e)
{
    return err_set(e, ERR_ABORTED, "NCCL: the group was aborted");
}

/* Whether an abort or `watch` ends the wait. Sets e if so. */
static bool comm_interrupted(struct comm *c, struct err *e)
{
    if (atomic_load(&c->aborted))
        return comm_fail_aborted(e) != ERR_OK;
    return c->watch && c->watch(c->watch_arg, e) != ERR_OK;
}

enum err_code nccl_settle(struct comm *c, ncclResult_t rc, int timeout_ms, const char *what, struct err *e)
{
    int64_t deadline = clock_boot_ms() + timeout_ms;
    unsigned tries = 0;

    while (rc == ncclInProgress) {
        ncclResult_t state = ncclInProgress;

        /* NCCL itself does not detect a peer that died before it connected. */
        if (comm_interrupted(c, e))
            return nccl_keep_error(c, e);
        rc = c->lib->async_error(c->nccl, &state);
        if (rc == ncclSuccess)
            rc = state;
        if (rc != ncclInProgress)
            break;
        if (clock_boot_ms() >= deadline) {
            comm_fail_late(c, timeout_ms, what, e);
            return nccl_keep_error(c, e);
        }
        nccl_nap(&tries);
    }
    if (rc == ncclSuccess)
        return ERR_OK;
    comm_fail(c, rc, what, e);
    return nccl_keep_error(c, e);
}

/* ---- what is in flight */

/* The stream has reached the mark. If operations were added since, a new mark is recorded after them. */
static enum err_code move_mark(struct comm *c, struct err *e)
{
    cudaError_t rc = cudaSuccess;

    c->marked = c->more;
    c->more = false;
    if (c->marked) {
        rc = cudaEventRecord(c->mark, c->stream);
        c->marked_ms = clock_boot_ms();
    }
    return rc ? nccl_cuda_error(rc, "NCCL's stream", e) : ERR_OK;
}

/* ABORTED if the operations before the mark have taken longer than stall_ms. */
static enum err_code check_mark(struct comm *c, struct err *e)
{
    cudaError_t rc = c->marked ? cudaEventQuery(c->mark) : cudaErrorNotReady;

    if (!c->marked)
        return ERR_OK;
    if (rc == cudaSuccess)
        return move_mark(c, e);
    if (rc != cudaErrorNotReady)
        return nccl_cuda_error(rc, "NCCL's stream", e);
    (void)cudaGetLastError(); /* CUDA remembers "not ready" as an error */
    if (clock_boot_ms() - c->marked_ms >= c->stall_ms)
        return err_set(e, ERR_ABORTED,
                       "NCCL: an operation has not ended within %d ms: a peer hangs or has died",
                       c->stall_ms);
    return ERR_OK;
}

static enum err_code check_nccl(struct comm *c, struct err *e)
{
    ncclResult_t state = ncclSuccess, rc = c->lib->async_error(c->nccl, &state);

    if (rc == ncclSuccess)
        rc = state;
    if (rc == ncclSuccess || rc == ncclInProgress)
        return ERR_OK;
    return comm_fail(c, rc, "the group has failed", e);
}

enum err_code nccl_check(struct comm *c, struct err *e)
{
    /* The first error is kept for ever, because ranks may have summed different values since then. */
    if (c->first_error.code) {
        *e = c->first_error;
        return e->code;
    }
    if (atomic_load(&c->aborted))
        return comm_fail_aborted(e);
    if (check_nccl(c, e) || check_mark(c, e))
        return nccl_keep_error(c, e);
    return ERR_OK;
}
