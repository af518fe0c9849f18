#ifndef DDP_TRAINER_MODEL_GPT_INTERNAL_H
#define DDP_TRAINER_MODEL_GPT_INTERNAL_H

#include "trainer/model/gpt.h"

/* What gpt.c lays out and gpt_pass.c computes with. Offsets are floats from the start of the flat arrays. */

struct gpt_norm_params {
    size_t gain, shift;
};
struct gpt_linear_params {
    size_t weight, bias; /* (in,out), (out) */
};

/* What forward leaves of a layer for backward; n is tokens, C the width. "typed": bf16 or float. */
struct gpt_layer {
    struct gpt_norm_params norm1, norm2;
    struct gpt_linear_params qkv, attention, up, down;
    float *x1, *stats1; /* (n,C): the residual as norm1 sees it; (n,2) */
    void *y1;           /* (n,C) typed */
    float *qkv_out;     /* (n,3C) */
    float *o, *lse;     /* (n,C); (rows,heads,context) */
    float *x2, *stats2;
    void *y2;
    float *z; /* (n,4C) before the activation */
};

struct gpt {
    struct model base;
    struct gpt_shape s;
    size_t wte, wpe, head; /* head: wte where it is tied */
    struct gpt_norm_params last;
    struct gpt_layer *layers;
    float *x, *stats; /* of the last norm */
    void *y;

    /* shared by the layers */
    void *a;        /* (n,4C) typed: after the activation */
    float *wide;    /* (n,4C): gradients of z, and of qkv */
    float *residue; /* (n,C): gradient of the residual */
    float *dy;      /* (n,C): gradient of a norm's output, and of o */
    void *ddelta;   /* (n,C) typed: gradient of what was added; residue itself where that is the same */
    void *narrow;   /* (n,4C) bf16 of o, dz, dqkv; NULL for float */

    int64_t head_rows; /* tokens whose logits exist at a time */
    float *logits;     /* (head_rows,vocab) */
    void *dlogits;     /* typed; logits itself for float */
    void *weights;     /* bf16: all parameters; NULL for float */
};

static inline struct gpt *gpt_of(struct model *m)
{
    return (struct gpt *)(void *)m;
}

/* gpt_pass.c */
void gpt_evaluate(struct model *m, const float *params, const struct model_batch *b,
                  struct device_tally *tally);
void gpt_train(struct model *m, const float *params, float *grads, const struct model_batch *b, float scale,
               struct device_tally *tally, model_ready_fn ready, void *arg);

#endif
