/* Communicators from creation to destruction, and their state. */
#include "nccl.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

/* ---- faults on demand */

bool standin_fault(const char *name)
{
    const char *said = getenv("DDP_STANDIN_NCCL_FAULT");
    size_t size = strlen(name);

    while (said && *said) {
        size_t here = strcspn(said, ",");
        if (here == size && memcmp(said, name, size) == 0)
            return true;
        said += here + (said[here] == ',');
    }
    return false;
}

void standin_die(const char *fault)
{
    if (standin_fault(fault))
        raise(SIGKILL);
}

int standin_version(void)
{
    const char *said = getenv("DDP_STANDIN_NCCL_VERSION");

    return said ? atoi(said) : NCCL_VERSION_CODE;
}

/* ---- */

ncclResult_t ncclGetVersion(int *version)
{
    *version = standin_version();
    return ncclSuccess;
}

static int blocks_given, ids_given;

int standin_blocks(void)
{
    return blocks_given;
}

int standin_ids(void)
{
    return ids_given;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    struct ncclComm *c;

    if (config->size != sizeof(*config) || config->blocking != 0 || rank < 0 || rank >= ranks)
        return ncclInvalidArgument;
    c = calloc(1, sizeof(*c));
    if (!c)
        return ncclSystemError;
    blocks_given = config->minCTAs == config->maxCTAs && config->minCTAs > 0 ? config->minCTAs : 0;
    ids_given = 1;
    c->rank = rank;
    c->ranks = ranks;
    c->id = id;
    c->listener = rank == 0 ? standin_take_listener(&id) : -1;
    c->peers = calloc((size_t)ranks, sizeof(*c->peers));
    for (int r = 0; r < ranks; r++)
        c->peers[r].fd = -1;
    atomic_store(&c->holders, 1);
    atomic_store(&c->state, rank == 0 && c->listener < 0 ? ncclInvalidUsage : ncclInProgress);
    *out = c;
    return (ncclResult_t)atomic_load(&c->state);
}

/* All ranks meet at the first id; those of the others are closed. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t *out, int ranks, int rank, int id_count, ncclUniqueId *ids,
                                      ncclConfig_t *config)
{
    ncclResult_t rc =
        id_count > 0 ? ncclCommInitRankConfig(out, ranks, ids[0], rank, config) : ncclInvalidArgument;

    ids_given = id_count;
    for (int i = 1; i < id_count && rank == 0; i++) {
        struct ncclComm unused = {.id = ids[i], .listener = standin_take_listener(&ids[i])};
        if (unused.listener < 0)
            return ncclInvalidArgument;
        standin_close_listener(&unused);
    }
    return rc;
}

void standin_hold(struct ncclComm *c)
{
    atomic_fetch_add(&c->holders, 1);
}

void standin_drop(struct ncclComm *c)
{
    if (atomic_fetch_sub(&c->holders, 1) > 1)
        return;
    for (int r = 0; r < c->ranks; r++) {
        if (c->peers[r].fd >= 0)
            close(c->peers[r].fd);
        free(c->peers[r].data);
    }
    standin_close_listener(c);
    free(c->peers);
    free(c);
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    return (ncclResult_t)atomic_load(&c->state);
}

/* The host memory is written, because only then it counts as used. */
static void leave_something(void)
{
    volatile char *here = malloc(1 << 20);
    void *there = NULL;

    for (size_t i = 0; here && i < 1 << 20; i += 4096)
        here[i] = 1;
    cudaMalloc(&there, 1 << 20);
}

/* DDP_STANDIN_NCCL_COUNTS names a file, to which each communicator adds a line when it ends. */
static void counts_write(const struct ncclComm *c)
{
    const char *file = getenv("DDP_STANDIN_NCCL_COUNTS");
    FILE *f = file ? fopen(file, "a") : NULL;

    if (!f)
        return;
    fprintf(
        f,
        "rank=%d sums=%zu broadcasts=%zu broadcast_bytes=%zu scatters=%zu gathers=%zu gather_bytes=%zu sum_bytes=%zu blocks=%d variables=%d\n",
        c->rank, c->sums, c->broadcasts, c->broadcast_bytes, c->scatters, c->gathers, c->gather_bytes,
        c->sum_bytes, blocks_given,
        !!getenv("NCCL_ALGO") + !!getenv("NCCL_PROTO") + !!getenv("NCCL_NVLS_ENABLE"));
    fclose(f);
}

static ncclResult_t comm_end(ncclComm_t c)
{
    counts_write(c);
    standin_drop(c);
    if (standin_fault("leak"))
        leave_something();
    return standin_fault("end-fails") ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    while (standin_fault("hang-in-destroy"))
        pause();
    return comm_end(c);
}

/* With the fault hang-in-abort it does not return, as can happen in the real NCCL. */
ncclResult_t ncclCommAbort(ncclComm_t c)
{
    while (standin_fault("hang-in-abort"))
        pause();
    if (standin_fault("late-abort"))
        usleep(20000);
    atomic_store(&c->aborted, true);
    return comm_end(c);
}

/* The first operation completes once all ranks could be reached. */
static void connect_all(struct ncclComm *c)
{
    if (standin_fault("late-connect"))
        return;
    c->connected = true;
    atomic_store(&c->state, standin_fault("lost-connecting") ? ncclRemoteError : ncclSuccess);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
    if (!c->formed)
        standin_form(c);
    else if (!c->connected && atomic_load(&c->state) == ncclInProgress)
        connect_all(c);
    *state = (ncclResult_t)atomic_load(&c->state);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t rc)
{
    switch (rc) {
    case ncclSuccess:
        return "no error";
    case ncclSystemError:
        return "unhandled system error";
    case ncclInvalidUsage:
        return "invalid usage";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    default:
        return "internal error";
    }
}

const char *ncclGetLastError(ncclComm_t c)
{
    return c && atomic_load(&c->state) == ncclInvalidUsage ? "ranks of different versions, or no such id"
                                                           : "";
}
