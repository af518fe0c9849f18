#ifndef DDP_TRAINER_DEVICE_CUDA_CUDA_H
#define DDP_TRAINER_DEVICE_CUDA_CUDA_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "trainer/device/comm.h"
#include "trainer/device/cuda/attention.h"
#include "trainer/device/cuda/gemm/gemm_layer.h"
#include "trainer/device/cuda/kernels/kernels.h"
#include "trainer/device/device.h"

/* A GPU as a device. All work goes to one stream, in the order of the calls; collectives have a second stream
 * (nccl/nccl.h), and copies of snapshots a third one (fetch.c). The host waits by polling an event, never inside CUDA, so that the death of a peer ends the wait.
 *
 * Errors: the device keeps its first error and reports it in wait. Until then it starts nothing more. Some of CUDA's
 * errors end its context: every later wait reports such an error, and the process must exit. */

enum { CUDA_SLOTS = 4, CUDA_FETCH_SLOTS = 3, CUDA_GRAPHS = 32 };
#define CUDA_SLOT_BYTES ((size_t)4 << 20)

struct cuda_slot {
    void *pinned;
    cudaEvent_t done; /* recorded behind the last copy that used it */
};
struct cuda_block {
    struct cuda_block *next;
    void *memory;
    size_t bytes; /* 0: internal, not counted as the device's memory */
};
struct cuda_graph {
    uint64_t key;
    cudaGraphExec_t run;
};

struct cuda_device {
    struct device base;
    cudaStream_t stream;
    cudaEvent_t idle;                                 /* polled by wait */
    struct err first;                                 /* kept until wait has reported it */
    bool lost;                                        /* CUDA's context has ended: `first` stays for ever */
    enum err_code (*check)(void *arg, struct err *e); /* set by watch */
    void *check_arg;
    struct err no_nccl; /* why there are no collectives */
    struct cuda_block *blocks;
    struct cuda_slot slot[CUDA_SLOTS];
    unsigned next_slot;
    cudaStream_t fetch_stream; /* of fetch.c, with slots of its own */
    int64_t fetch_patience_ns; /* how long a copy waits for a piece */
    struct cuda_slot fetch_slot[CUDA_FETCH_SLOTS];
    struct cuda_workspace work;
    struct attention *attention;
    struct gemm *gemm;
    struct profile *profile; /* NULL: not asked for */
    struct cuda_graph graph[CUDA_GRAPHS];
    unsigned graphs, oldest_graph;
    uint64_t recording; /* key of the recording in progress; 0: none */
    bool plain;         /* a recording failed once, so nothing is recorded any more */
};
static inline struct cuda_device *cuda_of(struct device *d)
{
    return (struct cuda_device *)(void *)d;
}

enum err_code cuda_open(struct device **out, struct err *e); /* as struct plugin's open */

/* False after the device's first error: nothing more is started. */
static inline bool cuda_ready(const struct cuda_device *c)
{
    return c->first.code == ERR_OK;
}
/* Records the device's error, unless it has one already. */
void cuda_failed(struct cuda_device *c, const struct err *e);
/* Returns false, and records the device's error, if code is not cudaSuccess. */
bool cuda_ok(struct cuda_device *c, cudaError_t code, const char *what);
/* Waits until the event has happened. Returns false on an error of the GPU or of watch's check, and records it. */
bool cuda_await(struct cuda_device *c, cudaEvent_t event);

#endif
