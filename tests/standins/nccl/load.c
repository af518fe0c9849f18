/* The stand-in is linked, so there is no library to open. */
#include "internal.h"
#include "trainer/device/cuda/nccl/nccl_load.h"

enum err_code nccl_load(struct nccl_library *out, struct err *e)
{
    if (standin_fault("missing"))
        return err_set(e, ERR_UNAVAILABLE, "NCCL: the stand-in plays a machine without it");
    *out = (struct nccl_library){.version = ncclGetVersion,
                                 .make_id = ncclGetUniqueId,
                                 .error_text = ncclGetErrorString,
                                 .last_error = ncclGetLastError,
                                 .init = ncclCommInitRankConfig,
                                 .init_scalable = standin_fault("one-id") ? NULL : ncclCommInitRankScalable,
                                 .async_error = ncclCommGetAsyncError,
                                 .allreduce = ncclAllReduce,
                                 .reduce = ncclReduce,
                                 .reduce_scatter = ncclReduceScatter,
                                 .gather = ncclAllGather,
                                 .group_start = ncclGroupStart,
                                 .group_end = ncclGroupEnd,
                                 .broadcast = ncclBroadcast,
                                 .finalize = ncclCommFinalize,
                                 .destroy = ncclCommDestroy,
                                 .abort = ncclCommAbort};
    return ERR_OK;
}
