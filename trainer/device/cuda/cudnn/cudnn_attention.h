#ifndef DDP_TRAINER_DEVICE_CUDA_CUDNN_CUDNN_ATTENTION_H
#define DDP_TRAINER_DEVICE_CUDA_CUDNN_CUDNN_ATTENTION_H

#include "trainer/device/cuda/cudnn/cudnn_graph.h"

/* The graphs of attention's forward and backward pass. The numbers name the tensors of the variant pack, which gives
 * each its address at a call. */

enum {
    CUDNN_Q = 1,
    CUDNN_K,
    CUDNN_V,
    CUDNN_O,
    CUDNN_STATS,  /* (rows,heads,context) float: lse */
    CUDNN_SCALE,  /* value: 1 / sqrt(size) */
    CUDNN_HIDDEN, /* value: -infinity */
    CUDNN_D_O,
    CUDNN_DQ,
    CUDNN_DK,
    CUDNN_DV,
    CUDNN_SUMS, /* (rows,heads,context) float, workspace: sum(d_o o) */
    CUDNN_ONE,  /* value: 1 */
};
struct cudnn_heads {
    int64_t rows, heads, context, size; /* size: elements of a head */
};
void cudnn_attention_forward(struct cudnn_graph *g, const struct cudnn_heads *n);
void cudnn_attention_backward(struct cudnn_graph *g, const struct cudnn_heads *n);

#endif
