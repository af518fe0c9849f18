#ifndef DDP_TRAINER_DEVICE_CUDA_ATTENTION_CUH
#define DDP_TRAINER_DEVICE_CUDA_ATTENTION_CUH

#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>

#include "trainer/device/cuda/kernels/bf16.cuh"
#include "trainer/device/cuda/kernels/dropout.cuh"
#include "trainer/device/cuda/kernels/launch.cuh"
#include "trainer/device/cuda/kernels/power.cuh"

/* What a block of our attention kernels is told, and what the mma and the plain kernels share. A block is one
 * tile of queries, or of keys, of one head of one row. */

struct attention_work {
    int64_t context, heads, size, width;
    int64_t tiles; /* of one head */
    float scale;   /* 1 / sqrt(size) */
    struct dropout_draw draw;
    const void *qkv, *o, *d_o;
    void *to; /* o or dqkv */
    float *lse, *delta;
};

struct attention_place {
    int64_t row, head, tile;
    int64_t tokens; /* the row's first */
    int64_t lines;  /* the head's first of lse, delta */
};

/* From the heaviest tiles to the lightest, so that the last to run are short: the last queries see most keys
 * (backwards), the first keys are seen by most queries. */
static __device__ __forceinline__ struct attention_place attention_here(const struct attention_work *w,
                                                                        bool backwards)
{
    struct attention_place p;
    int64_t id = (int64_t)blockIdx.x, group = id / w->tiles, tile = id % w->tiles;
    p.row = group / w->heads;
    p.head = group % w->heads;
    p.tile = backwards ? w->tiles - 1 - tile : tile;
    p.tokens = p.row * w->context;
    p.lines = group * w->context;
    return p;
}

static inline struct attention_work attention_work_of(const struct device_attention *h, int64_t tile)
{
    struct attention_work w;
    w.context = h->n.context;
    w.heads = h->heads;
    w.width = h->n.width;
    w.size = h->n.width / h->heads;
    w.tiles = (h->n.context + tile - 1) / tile;
    w.scale = 1.0f / sqrtf((float)w.size);
    w.draw = dropout_draw_of(&h->dropout);
    w.qkv = h->qkv;
    w.o = h->o;
    w.d_o = NULL;
    w.to = NULL;
    w.lse = h->lse;
    w.delta = NULL;
    return w;
}

static inline dim3 attention_blocks(const struct device_attention *h, const struct attention_work *w)
{
    return dim3((unsigned)(h->n.rows * h->heads * w->tiles), 1, 1);
}

#endif
