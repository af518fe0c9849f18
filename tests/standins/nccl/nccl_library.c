/* A library that has NCCL's functions, of the version VERSION. Without ALL it lacks most of them. */
#include "nccl.h"

ncclResult_t ncclGetVersion(int *version)
{
    *version = VERSION;
    return ncclSuccess;
}

#ifdef ALL
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    id->internal[0] = 'x';
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t rc)
{
    (void)rc;
    return "";
}

const char *ncclGetLastError(ncclComm_t c)
{
    (void)c;
    return "";
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    (void)out, (void)ranks, (void)id, (void)rank, (void)config;
    return ncclInternalError;
}

#if VERSION >= 22300
ncclResult_t ncclCommInitRankScalable(ncclComm_t *out, int ranks, int rank, int id_count, ncclUniqueId *ids,
                                      ncclConfig_t *config)
{
    (void)out, (void)ranks, (void)rank, (void)id_count, (void)ids, (void)config;
    return ncclInternalError;
}
#endif

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
    (void)c, (void)state;
    return ncclInternalError;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    (void)c;
    return ncclInternalError;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    (void)c;
    return ncclInternalError;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    (void)c;
    return ncclInternalError;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t stream)
{
    (void)from, (void)to, (void)count, (void)type, (void)op, (void)c, (void)stream;
    return ncclInternalError;
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t c, cudaStream_t stream)
{
    (void)from, (void)to, (void)count, (void)type, (void)op, (void)root, (void)c, (void)stream;
    return ncclInternalError;
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t stream)
{
    (void)from, (void)to, (void)count, (void)type, (void)op, (void)c, (void)stream;
    return ncclInternalError;
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t c,
                           cudaStream_t stream)
{
    (void)from, (void)to, (void)count, (void)type, (void)c, (void)stream;
    return ncclInternalError;
}

ncclResult_t ncclGroupStart(void)
{
    return ncclInternalError;
}

ncclResult_t ncclGroupEnd(void)
{
    return ncclInternalError;
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t c, cudaStream_t stream)
{
    (void)from, (void)to, (void)count, (void)type, (void)root, (void)c, (void)stream;
    return ncclInternalError;
}
#endif
