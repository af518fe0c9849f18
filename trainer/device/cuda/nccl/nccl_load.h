#ifndef DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_LOAD_H
#define DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_LOAD_H

#include <nccl.h>

#include "base/err.h"

/* The functions of NCCL that are used here. The library is opened at run time. So a machine without NCCL can still use
 * its GPU with a single rank, which needs no collectives. */

struct nccl_library {
    ncclResult_t (*version)(int *version);
    ncclResult_t (*make_id)(ncclUniqueId *id);
    const char *(*error_text)(ncclResult_t rc);
    const char *(*last_error)(ncclComm_t c);
    ncclResult_t (*init)(ncclComm_t *out, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config);
    /* With several ids. NULL: the library is older than this function (2.23). */
    ncclResult_t (*init_scalable)(ncclComm_t *out, int ranks, int rank, int id_count, ncclUniqueId *ids,
                                  ncclConfig_t *config);
    ncclResult_t (*async_error)(ncclComm_t c, ncclResult_t *state);
    ncclResult_t (*allreduce)(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                              ncclComm_t c, cudaStream_t stream);
    ncclResult_t (*reduce)(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           int root, ncclComm_t c, cudaStream_t stream);
    ncclResult_t (*reduce_scatter)(const void *from, void *to, size_t count, ncclDataType_t type,
                                   ncclRedOp_t op, ncclComm_t c, cudaStream_t stream);
    ncclResult_t (*gather)(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t c,
                           cudaStream_t stream);
    ncclResult_t (*group_start)(void);
    ncclResult_t (*group_end)(void);
    ncclResult_t (*broadcast)(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                              ncclComm_t c, cudaStream_t stream);
    ncclResult_t (*finalize)(ncclComm_t c);
    ncclResult_t (*destroy)(ncclComm_t c);
    ncclResult_t (*abort)(ncclComm_t c);
};

/* UNAVAILABLE: there is no library, it lacks a function, or its version is below 2.17, or 3.0 or later. On success the
 * library stays open. */
MUST_CHECK enum err_code nccl_load(struct nccl_library *out, struct err *e);
MUST_CHECK enum err_code nccl_load_file(struct nccl_library *out, const char *file, struct err *e);

#endif
