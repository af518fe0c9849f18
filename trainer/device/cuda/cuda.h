#ifndef DDP_TRAINER_DEVICE_CUDA_CUDA_H
#define DDP_TRAINER_DEVICE_CUDA_CUDA_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "trainer/device/comm.h"
#include "trainer/device/cuda/attention.h"
#include "trainer/device/cuda/gemm.h"
#include "trainer/device/cuda/kernels/kernels.h"
#include "trainer/device/device.h"

/* A GPU: everything is put on one stream, in the order it is told; collectives have a second one (nccl.h).
 * The host waits by asking an event, never inside CUDA, so that a peer's death ends the wait.
 *
 * Errors: the first one sticks and shows in wait; until then nothing more is started. Some of CUDA's are its
 * context's end: those show in every later wait, and the process must exit. */

enum { CUDA_SLOTS = 4, CUDA_GRAPHS = 32 };
#define CUDA_SLOT_BYTES ((size_t)4 << 20)

struct cuda_slot {
    void *pinned;
    cudaEvent_t done; /* the copy that used it last */
};
struct cuda_block {
    struct cuda_block *next;
    void *memory;
    size_t bytes; /* 0: not among the device's, but inside */
};
struct cuda_graph {
    uint64_t key;
    cudaGraphExec_t run;
};

struct cuda_device {
    struct device base;
    cudaStream_t stream;
    cudaEvent_t idle;                                 /* what wait asks */
    struct err first;                                 /* sticks until wait */
    bool lost;                                        /* with CUDA's context: first sticks for ever */
    enum err_code (*check)(void *arg, struct err *e); /* of watch */
    void *check_arg;
    struct cuda_block *blocks;
    struct cuda_slot slot[CUDA_SLOTS];
    unsigned next_slot;
    struct cuda_workspace work;
    struct attention *attention;
    struct gemm *gemm;
    struct cuda_graph graph[CUDA_GRAPHS];
    unsigned graphs, oldest_graph;
    uint64_t recording; /* key; 0: not */
    bool plain;         /* recording failed once */
};
static inline struct cuda_device *cuda_of(struct device *d)
{
    return (struct cuda_device *)(void *)d;
}

enum err_code cuda_open(struct device **out, struct err *e); /* as struct plugin's open */

/* ---- error.c */

bool cuda_ends_context(cudaError_t code); /* it cannot be used any more */
/* UNAVAILABLE: no GPU or driver; RESOURCE_EXHAUSTED: memory; else INTERNAL: another process, on another GPU,
 * may do better. Clears CUDA's own memory of it. */
enum err_code cuda_error(cudaError_t code, const char *what, struct err *e);

/* ---- cuda.c: what goes wrong, and waiting */

static inline bool cuda_ready(const struct cuda_device *c)
{
    return c->first.code == ERR_OK;
}
void cuda_failed(struct cuda_device *c, const struct err *e);
/* False, and it is the device's error, when code is not cudaSuccess. */
bool cuda_ok(struct cuda_device *c, cudaError_t code, const char *what);
/* Until the event has happened; false: an error, of the GPU or of watch's check, which is then the device's.
 */
bool cuda_await(struct cuda_device *c, cudaEvent_t event);

/* ---- memory.c */
enum err_code cuda_alloc(struct device *d, size_t bytes, void **out, struct err *e);
void cuda_free(struct device *d, void *p);
void cuda_free_all(struct cuda_device *c);
/* At least that much room for partial sums. The room before it stays: recordings may use it. */
enum err_code cuda_work_grow(struct cuda_device *c, size_t bytes, struct err *e);

/* ---- transfer.c: by way of pinned memory, so that the host's may be ordinary */
enum err_code cuda_slots_open(struct cuda_device *c, struct err *e);
void cuda_slots_close(struct cuda_device *c);
void cuda_upload(struct device *d, void *to, const void *from_host, size_t bytes);
void cuda_download(struct device *d, void *to_host, const void *from, size_t bytes);
void cuda_copy(struct device *d, void *to, const void *from, size_t bytes);
void cuda_zero(struct device *d, void *to, size_t bytes);

/* ---- graph.c */
void cuda_record(struct device *d, uint64_t key);
bool cuda_recorded(struct device *d);
bool cuda_replay(struct device *d, uint64_t key);
void cuda_forget(struct cuda_device *c); /* all recordings */

/* ---- operations.c: fills in what computes */
void cuda_operations(struct device_ops *ops);

#endif
