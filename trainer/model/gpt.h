#ifndef DDP_TRAINER_MODEL_GPT_H
#define DDP_TRAINER_MODEL_GPT_H

#include "trainer/model/model.h"

/* GPT-2 (Radford et al., 2019): token and position embeddings; layers of x += attention(norm(x)), x +=
 * mlp(norm(x)); a last norm and a head without bias, which is the token embedding where it is tied.
 *
 * Tensors are Hugging Face's GPT-2 by name, shape and order in memory: "transformer.wte.weight"
 * (vocab,width), "transformer.wpe.weight" (context,width), then for each layer "transformer.h.<i>." with
 * ln_1.weight, ln_1.bias (width), attn.c_attn.weight (width, 3 width), attn.c_attn.bias, attn.c_proj.weight
 * (width,width), ..., ln_2.*, mlp.c_fc.weight (width, 4 width), .bias, mlp.c_proj.weight (4 width, width),
 * .bias; "transformer.ln_f.*"; and untied "lm_head.weight" (vocab,width). Layers' matrices are (in,out): y =
 * x W.
 *
 * Beginnings are GPT-2's: weights from a normal distribution of deviation 0.02, those of the two c_proj,
 * which end in the residual, 0.02 / sqrt(2 layers); biases 0; norms 1 and 0.
 *
 * With type bf16 the factors of matrix products are rounded to bf16, weights once a batch; products, sums,
 * norms, softmax, attention and whatever is kept between steps are float. */
struct gpt_shape {
    int64_t layers, heads, width, context, vocab;
    double dropout; /* after embeddings, on attention's weights and on what is added to the residual */
    bool tied;
    enum device_activation activation;
    enum device_type type;
    uint64_t seed; /* of dropout */
};

/* INVALID_ARGUMENT where heads do not divide the width. */
MUST_CHECK enum err_code gpt_open(struct model **out, const struct gpt_shape *shape, int64_t max_rows,
                                  struct device *device, struct err *e);

/* logits (rows,context,vocab) in device memory; nothing is dropped. */
void gpt_logits(struct model *m, const float *params, const struct model_batch *b, float *logits);

#endif
