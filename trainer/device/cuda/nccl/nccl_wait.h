#ifndef DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_WAIT_H
#define DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_WAIT_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "trainer/device/comm.h"

/* What the files of NCCL share: the communicator, and the ways of waiting for it. */

struct comm {
    struct device *device; /* borrowed */
    ncclComm_t nccl;       /* NULL: there is none yet, or no longer */
    bool formed;
    cudaStream_t compute, stream;
    cudaEvent_t before, after; /* what the device was told; what was put on the stream */
    bool put;                  /* something was, so that `after` means something */
    atomic_bool aborted;
    struct err first_error; /* the first thing that went wrong; sticks */

    /* Operations in flight, as far as one must know: `mark` is behind some of them, and what came later has
     * `more` set. */
    cudaEvent_t mark;
    bool marked, more;
    int64_t marked_ms;
    int stall_ms;

    enum err_code (*watch)(void *arg, struct err *e); /* NULL once the end has begun */
    void *watch_arg;
};

enum err_code nccl_error(const struct comm *c, ncclResult_t rc, const char *what, struct err *e);
enum err_code nccl_cuda_error(cudaError_t rc, const char *what, struct err *e);
/* For the communicator that is the end: keeps it, where it is the first. */
enum err_code nccl_keep_error(struct comm *c, const struct err *e);
/* Until NCCL is through with a call that returned rc. ABORTED by the flag; watch's error; of a group that is
 * formed ABORTED for all that may come of a peer; of one that forms DEADLINE_EXCEEDED, or NCCL's error. */
MUST_CHECK enum err_code nccl_settle(struct comm *c, ncclResult_t rc, int timeout_ms, const char *what,
                                     struct err *e);

/* Check of comm.h. */
MUST_CHECK enum err_code nccl_check(struct comm *c, struct err *e);

/* A nap of a wait: short ones first. */
void nccl_nap(unsigned *tries);

#endif
