/* Causal attention described to cuDNN: a graph of single operations, which its engines recognise as a whole and run as
 * one kernel. Heads are views of packed rows: q, k and v of a token lie one behind the other. Where a product needs
 * keys or values transposed, their strides are swapped. Scores, masks and weights are virtual tensors: no engine
 * stores them, except that the deterministic backward pass keeps their gradient in its workspace.
 *
 * With s = scale q k^T, hidden where key > query, and lse = log(sum(e^s)) over the keys:
 *   forward:  p = e^s / sum(e^s), o = p v; lse is kept (CUDNN_STATS).
 *   backward: p = e^(s - lse), dv = p^T d_o, delta = sum(d_o o) (CUDNN_SUMS),
 *             ds = scale p (d_o v^T - delta), dq = ds k, dk = ds^T q. */
#include "trainer/device/cuda/cudnn/cudnn_attention.h"

#define BF16 CUDNN_DATA_BFLOAT16
#define F32 CUDNN_DATA_FLOAT

struct view {
    struct cudnn_shape packed, packed_transposed; /* q, k, v and their gradients: views of (B,T,3C) */
    struct cudnn_shape dense;                     /* o and its gradient: views of (B,T,C) */
    struct cudnn_shape dense_virtual;             /* the same dimensions in memory of its own */
    struct cudnn_shape scores, scores_transposed; /* (rows,heads,context,context) */
    struct cudnn_shape lines;                     /* (rows,heads,context,1) */
};

static struct view view_of(const struct cudnn_heads *n)
{
    int64_t b = n->rows, h = n->heads, t = n->context, s = n->size, w = h * s;
    return (struct view){
        .packed = {{b, h, t, s}, {t * 3 * w, s, 3 * w, 1}},
        .packed_transposed = {{b, h, s, t}, {t * 3 * w, s, 1, 3 * w}},
        .dense = {{b, h, t, s}, {t * w, s, w, 1}},
        .dense_virtual = {{b, h, t, s}, {t * w, t * s, s, 1}},
        .scores = {{b, h, t, t}, {h * t * t, t * t, t, 1}},
        .scores_transposed = {{b, h, t, t}, {h * t * t, t * t, 1, t}},
        .lines = {{b, h, t, 1}, {h * t, t, 1, 1}},
    };
}

/* y = mode(x, b), a new virtual tensor; b NULL: mode(x). */
static cudnnBackendDescriptor_t graph_pointwise(struct cudnn_graph *g, cudnnPointwiseMode_t mode,
                                                cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                                                cudnnDataType_t type, const struct cudnn_shape *shape)
{
    cudnnBackendDescriptor_t y = cudnn_virtual(g, type, shape);
    cudnn_pointwise(g, mode, F32, x, b, NULL, -1, y);
    return y;
}

/* y = a b, a new virtual tensor of floats. */
static cudnnBackendDescriptor_t graph_matmul(struct cudnn_graph *g, cudnnBackendDescriptor_t a,
                                             cudnnBackendDescriptor_t b, const struct cudnn_shape *shape)
{
    cudnnBackendDescriptor_t y = cudnn_virtual(g, F32, shape);
    cudnn_multiply(g, a, b, y);
    return y;
}

/* x rounded to bf16, with other strides: for the transpose of a product's factor. */
static cudnnBackendDescriptor_t graph_reshape(struct cudnn_graph *g, cudnnBackendDescriptor_t x,
                                              const struct cudnn_shape *shape)
{
    cudnnBackendDescriptor_t y = cudnn_virtual(g, BF16, shape);
    cudnn_reshape(g, x, y);
    return y;
}

/* A query sees its own key and those before it; other scores become -infinity. */
static cudnnBackendDescriptor_t graph_mask_causal(struct cudnn_graph *g, cudnnBackendDescriptor_t scores,
                                                  const struct view *v)
{
    cudnnBackendDescriptor_t hidden = cudnn_value(g, CUDNN_HIDDEN, F32);
    cudnnBackendDescriptor_t query = cudnn_virtual(g, CUDNN_DATA_INT32, &v->scores);
    cudnnBackendDescriptor_t key = cudnn_virtual(g, CUDNN_DATA_INT32, &v->scores);
    cudnnBackendDescriptor_t seen = cudnn_virtual(g, CUDNN_DATA_BOOLEAN, &v->scores);
    cudnnBackendDescriptor_t y = cudnn_virtual(g, F32, &v->scores);
    cudnn_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, scores, NULL, NULL, 2, query);
    cudnn_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, scores, NULL, NULL, 3, key);
    cudnn_pointwise(g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, query, key, NULL, -1, seen);
    cudnn_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, F32, scores, hidden, seen, -1, y);
    return y;
}

void cudnn_attention_forward(struct cudnn_graph *g, const struct cudnn_heads *n)
{
    struct view w = view_of(n);
    cudnnBackendDescriptor_t q = cudnn_tensor(g, CUDNN_Q, BF16, &w.packed);
    cudnnBackendDescriptor_t k = cudnn_tensor(g, CUDNN_K, BF16, &w.packed_transposed);
    cudnnBackendDescriptor_t v = cudnn_tensor(g, CUDNN_V, BF16, &w.packed);
    cudnnBackendDescriptor_t o = cudnn_tensor(g, CUDNN_O, BF16, &w.dense);
    cudnnBackendDescriptor_t stats = cudnn_tensor(g, CUDNN_STATS, F32, &w.lines);
    cudnnBackendDescriptor_t scale = cudnn_value(g, CUDNN_SCALE, F32);

    /* The softmax over the keys; subtracting the largest score first keeps e^s finite. */
    cudnnBackendDescriptor_t s = graph_matmul(g, q, k, &w.scores);
    s = graph_pointwise(g, CUDNN_POINTWISE_MUL, s, scale, F32, &w.scores);
    s = graph_mask_causal(g, s, &w);
    cudnnBackendDescriptor_t most = cudnn_virtual(g, F32, &w.lines);
    cudnn_reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, most);
    s = graph_pointwise(g, CUDNN_POINTWISE_SUB, s, most, F32, &w.scores);
    cudnnBackendDescriptor_t power = graph_pointwise(g, CUDNN_POINTWISE_EXP, s, NULL, F32, &w.scores);
    cudnnBackendDescriptor_t sum = cudnn_virtual(g, F32, &w.lines);
    cudnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, power, sum);
    cudnnBackendDescriptor_t logarithm = graph_pointwise(g, CUDNN_POINTWISE_LOG, sum, NULL, F32, &w.lines);
    cudnn_pointwise(g, CUDNN_POINTWISE_ADD, F32, most, logarithm, NULL, -1, stats);
    cudnnBackendDescriptor_t weight = graph_pointwise(g, CUDNN_POINTWISE_DIV, power, sum, BF16, &w.scores);
    cudnn_multiply(g, weight, v, o);
}

void cudnn_attention_backward(struct cudnn_graph *g, const struct cudnn_heads *n)
{
    struct view w = view_of(n);
    cudnnBackendDescriptor_t q = cudnn_tensor(g, CUDNN_Q, BF16, &w.packed);
    cudnnBackendDescriptor_t k = cudnn_tensor(g, CUDNN_K, BF16, &w.packed_transposed);
    cudnnBackendDescriptor_t v = cudnn_tensor(g, CUDNN_V, BF16, &w.packed_transposed);
    cudnnBackendDescriptor_t o = cudnn_tensor(g, CUDNN_O, BF16, &w.dense);
    cudnnBackendDescriptor_t d_o = cudnn_tensor(g, CUDNN_D_O, BF16, &w.dense);
    cudnnBackendDescriptor_t stats = cudnn_tensor(g, CUDNN_STATS, F32, &w.lines);
    cudnnBackendDescriptor_t sums = cudnn_tensor(g, CUDNN_SUMS, F32, &w.lines);
    cudnnBackendDescriptor_t scale = cudnn_value(g, CUDNN_SCALE, F32);
    cudnnBackendDescriptor_t one = cudnn_value(g, CUDNN_ONE, F32);
    cudnnBackendDescriptor_t dq = cudnn_tensor(g, CUDNN_DQ, BF16, &w.packed);
    cudnnBackendDescriptor_t dk = cudnn_tensor(g, CUDNN_DK, BF16, &w.packed);
    cudnnBackendDescriptor_t dv = cudnn_tensor(g, CUDNN_DV, BF16, &w.packed);

    /* delta; the product with one makes the sum a tensor in memory. */
    cudnnBackendDescriptor_t both = graph_pointwise(g, CUDNN_POINTWISE_MUL, d_o, o, F32, &w.dense_virtual);
    cudnnBackendDescriptor_t sum = cudnn_virtual(g, F32, &w.lines);
    cudnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, both, sum);
    cudnn_pointwise(g, CUDNN_POINTWISE_MUL, F32, sum, one, NULL, -1, sums);

    /* p from the kept lse, and dv = p^T d_o. */
    cudnnBackendDescriptor_t s = graph_matmul(g, q, k, &w.scores);
    s = graph_pointwise(g, CUDNN_POINTWISE_MUL, s, scale, F32, &w.scores);
    s = graph_pointwise(g, CUDNN_POINTWISE_SUB, s, stats, F32, &w.scores);
    s = graph_mask_causal(g, s, &w);
    cudnnBackendDescriptor_t p = graph_pointwise(g, CUDNN_POINTWISE_EXP, s, NULL, F32, &w.scores);
    cudnn_multiply(g, graph_reshape(g, p, &w.scores_transposed), d_o, dv);

    /* ds, dk and dq. */
    cudnnBackendDescriptor_t ds = graph_matmul(g, d_o, v, &w.scores);
    ds = graph_pointwise(g, CUDNN_POINTWISE_SUB, ds, sums, F32, &w.scores);
    ds = graph_pointwise(g, CUDNN_POINTWISE_MUL, ds, p, F32, &w.scores);
    ds = graph_pointwise(g, CUDNN_POINTWISE_MUL, ds, scale, F32, &w.scores);
    cudnn_multiply(g, graph_reshape(g, ds, &w.scores_transposed), q, dk);
    cudnn_multiply(g, ds, graph_reshape(g, k, &w.packed), dq);
}
