#ifndef DDP_TRAINER_DEVICE_CUDA_ATTENTION_CUH
#define DDP_TRAINER_DEVICE_CUDA_ATTENTION_CUH

#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>

#include "trainer/device/cuda/kernels/bf16.cuh"
#include "trainer/device/cuda/kernels/dropout.cuh"
#include "trainer/device/cuda/kernels/launch.cuh"
#include "trainer/device/cuda/kernels/power.cuh"

/* Shared by our attention kernels, those on the tensor cores (mma) and the plain ones. A block computes one tile of
 * queries, or one of keys, of one head of one row of the batch. */

struct attention_work {
    int64_t context, heads, size, width;
    int64_t tiles; /* of each head */
    float scale;   /* 1 / sqrt(size) */
    struct dropout_draw draw;
    const void *qkv;     /* (rows,context,3 width): q, k and v of a token lie one behind the other */
    const void *o, *d_o; /* (rows,context,width) */
    void *to;            /* o or dqkv */
    float *lse, *delta;  /* (rows,heads,context): the log of the softmax's sum, and the sum over d_o o */
};

struct attention_place {
    int64_t row, head, tile;
    int64_t tokens; /* the first token of the row */
    int64_t lines;  /* the head's first element in lse and delta */
};

/* The block's tile. The heaviest tiles come first, so that the last blocks to run are short. Later queries see more
 * keys, so tiles of queries are taken backwards; earlier keys are seen by more queries, so tiles of keys are not. */
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
