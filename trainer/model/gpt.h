#ifndef DDP_TRAINER_MODEL_GPT_H
#define DDP_TRAINER_MODEL_GPT_H

#include "trainer/model/model.h"

/* GPT-2 (Radford et al., 2019): token and position embeddings; layers of x += attention(norm(x)), x +=
 * mlp(norm(x)); a last norm, and a head without bias. If `tied`, the head is the token embedding.
 *
 * Tensors have the names, shapes and order of Hugging Face's GPT-2: "transformer.wte.weight" (vocab,width),
 * "transformer.wpe.weight" (context,width), then for each layer "transformer.h.<i>." with ln_1.weight,
 * ln_1.bias (width), attn.c_attn.weight (width, 3 width), attn.c_attn.bias, attn.c_proj.weight (width,width),
 * ..., ln_2.*, mlp.c_fc.weight (width, 4 width), .bias, mlp.c_proj.weight (4 width, width), .bias;
 * "transformer.ln_f.*"; and, if not tied, "lm_head.weight" (vocab,width). Matrices of layers are (in,out): y
 * = x W.
 *
 * Initial parameters are GPT-2's: weights from a normal distribution with deviation 0.02; for the two c_proj,
 * whose results are added to the residual, 0.02 / sqrt(2 layers); biases 0; norms 1 and 0.
 *
 * With type bf16 the factors of matrix products are rounded to bf16, weights once for each batch. Products,
 * sums, norms, softmax, attention and everything that is kept between steps are float. */
#define GPT_LIBRARY_BYTES ((size_t)5 << 30) /* of a GPU's memory, left to cuDNN, NCCL and others */
struct gpt_shape {
    int64_t layers, heads, width, context, vocab;
    /* Applied after the embeddings, to attention's weights, and to what is added to the residual. */
    double dropout;
    bool tied;
    enum device_activation activation;
    enum device_type type;
    uint64_t seed;       /* seed of the dropout masks */
    double extra_arrays; /* see model_open */
    bool recompute; /* backward computes each layer again from its input instead of keeping its activations */
};

/* Opens a model. max_rows: largest number of rows in a batch. INVALID_ARGUMENT: the width is not a multiple
 * of heads. */
MUST_CHECK enum err_code gpt_open(struct model **out, const struct gpt_shape *shape, int64_t max_rows,
                                  struct device *device, struct err *e);

/* Computes the logits (rows,context,vocab), in device memory, without dropout. */
void gpt_logits(struct model *m, const float *params, const struct model_batch *b, float *logits);

#endif
