#ifndef DDP_TRAINER_MODEL_GPT_INTERNAL_H
#define DDP_TRAINER_MODEL_GPT_INTERNAL_H

#include "trainer/device/ranges.h"
#include "trainer/model/gpt.h"

/* The state that gpt.c lays out and gpt_pass.c computes with. Offsets are floats from the start of the flat
 * arrays. */

struct gpt_norm_params {
    size_t gain, shift;
};
struct gpt_linear_params {
    size_t weight, bias; /* (in,out), (out) */
};

/* A layer, and what its forward pass keeps for backward. n is the number of tokens, C the width. "typed": of
 * the type that products read; "kept": of the device's kept type for that type. If layers are computed again, each has
 * its own x1, and they share the memory of all the rest. */
struct gpt_layer {
    struct gpt_norm_params norm1, norm2;
    struct gpt_linear_params qkv, attention, up, down;
    float *x1, *stats1; /* x1 (n,C): the residual before norm1; stats1 (n,2) */
    void *y1;           /* (n,C) typed */
    void *qkv_out;      /* (n,3C) attended */
    void *o;            /* (n,C) attended */
    float *lse;         /* (rows,heads,context) */
    float *x2, *stats2;
    void *y2;
    void *z; /* (n,4C) kept: before the activation */
    void *a; /* (n,4C) typed: after it; NULL: computed again */
};

struct gpt {
    struct model base;
    struct gpt_shape s;
    enum device_type kept, attended; /* attended: of qkv, o and their gradients */
    size_t wte, wpe, head;           /* offsets; head is wte if it is tied */
    struct gpt_norm_params last;
    struct gpt_layer *layers;
    float *x, *stats; /* of the last norm: its input (n,C) and statistics (n,2) */
    void *y;

    bool recomputes; /* backward computes layers again */
    bool keeps;      /* the layers keep a */

    /* Memory that the layers share. */
    void *a;     /* (n,4C) typed: after the activation; NULL if layers keep it */
    void *delta; /* (n,C) kept: what is added to the residual; NULL: it is made in the memory of the sum */
    void *wide;  /* (n,4C) kept: gradients of z, and of qkv, which is attended */
    void *residual_grad; /* (n,C) kept: gradient of the residual */
    void *dy;            /* (n,C) kept: gradient of a norm's output, and of o, which is attended */
    /* (n,C) typed: gradient of what was added to the residual; the memory of residual_grad if the types are
     * the same and there is no dropout. */
    void *ddelta;
    void *narrow; /* (n,4C): o, dz or dqkv as products read it; NULL if the kept type is that type */

    int64_t head_rows; /* number of tokens whose logits exist at the same time */
    int64_t logits_ld; /* length of a row of logits: vocab or more */
    void *logits;      /* (head_rows,logits_ld) kept */
    void *dlogits;     /* typed; the memory of logits if the types are the same */
    /* The gradients that a pass only adds to, and the gaps between tensors. They are set to zero before the first
     * micro-batch of a step. All other gradients are results of matrix products, which overwrite them in that pass. */
    struct device_ranges added;
};

static inline struct gpt *gpt_of(struct model *m)
{
    return (struct gpt *)(void *)m;
}

/* Parameters lie in the order of the forward pass. A layer ends with the norm of the next one, or with the last norm. */
static inline size_t gpt_layer_end(const struct gpt *g, int64_t layer)
{
    return layer + 1 < g->s.layers ? g->layers[layer + 1].qkv.weight : g->last.shift + (size_t)g->s.width;
}

/* The size of a chunk of logits in bytes, on a GPU with `memory` bytes. Training needs `needed` bytes with the smallest
 * chunks. Half of the remaining memory goes to larger chunks, up to a limit. */
size_t gpt_logits_bytes(size_t memory, size_t needed);

/* The passes, in gpt_pass.c. */
void gpt_evaluate(struct model *m, const float *params, const struct model_batch *b,
                  struct device_tally *tally);
void gpt_train(struct model *m, const float *params, float *grads, const struct model_batch *b, float scale,
               struct device_tally *tally, model_ready_fn ready, void *arg);

#endif
