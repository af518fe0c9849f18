#ifndef DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_WAIT_H
#define DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_WAIT_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "trainer/device/comm.h"
#include "trainer/device/cuda/nccl/nccl_load.h"

/* The communicator, and the ways of waiting for it. Shared by the files of this folder. */

enum { NCCL_JOINS = 128, NCCL_ROOM = 1 << 23 };
struct nccl_joined {
    cudaEvent_t from, to; /* on the device's stream, before and after its wait */
};

struct comm {
    struct device *device; /* borrowed */
    const struct nccl_library *lib;
    int rank, ranks;
    ncclComm_t nccl; /* NULL: not created */
    bool formed;     /* all ranks have met; from now on errors count as a peer's */
    cudaStream_t compute, stream;
    cudaEvent_t before, after; /* after the device's work; after the last operation on the stream */
    bool put;                  /* an operation was started, so `after` is recorded */
    cudaEvent_t passed;        /* on the device's stream, behind the last join */
    bool joined;               /* there was one, so `passed` is recorded */
    atomic_bool aborted;       /* set by any thread */
    struct err first_error;    /* stays until the communicator is closed */
    void *room;                /* device memory for NCCL_ROOM bf16; NULL: comm_config.bf16 is not set */

    /* Operations in flight. The event `mark` is recorded after some of them; `more` says that others were added
     * later. */
    cudaEvent_t mark;
    bool marked, more;
    int64_t marked_ms;
    int stall_ms;

    cudaEvent_t marks[COMM_MARKS]; /* of comm_ops.mark, on the stream */
    bool marks_set[COMM_MARKS];

    /* Joins that are measured: [joins_read, joins_made) have not been read yet. */
    struct nccl_joined joins[NCCL_JOINS];
    uint64_t joins_read, joins_made;
    int64_t joined_ns; /* of those that have been read */

    enum err_code (*watch)(void *arg, struct err *e); /* NULL while closing */
    void *watch_arg;
};

enum err_code nccl_error(const struct nccl_library *lib, ncclComm_t c, ncclResult_t rc, const char *what,
                         struct err *e);
enum err_code nccl_cuda_error(cudaError_t rc, const char *what, struct err *e);
/* Keeps e as the communicator's error, unless it has one. The communicator cannot be used afterwards. Returns e's
 * code. */
enum err_code nccl_keep_error(struct comm *c, const struct err *e);
/* Waits until NCCL has finished a call that returned rc. ABORTED: the group was aborted, or, once it is formed, any
 * error that a peer may have caused. DEADLINE_EXCEEDED or NCCL's error while it forms; else the error of `watch`. */
MUST_CHECK enum err_code nccl_settle(struct comm *c, ncclResult_t rc, int timeout_ms, const char *what,
                                     struct err *e);

/* Check of comm.h. */
MUST_CHECK enum err_code nccl_check(struct comm *c, struct err *e);

/* Sleeps between two polls: not at all at first, then for 20 us, later for 1 ms. *tries counts the calls. */
void nccl_nap(unsigned *tries);

#endif
