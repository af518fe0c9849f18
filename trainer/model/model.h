#ifndef DDP_TRAINER_MODEL_MODEL_H
#define DDP_TRAINER_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/device/device.h"

/* Models: a vtable. Parameters and gradients are two flat float arrays that the caller owns and hands in; a
 * tensor is an offset, and both arrays have the same layout. Tensors lie in forward order, each on a 16-float
 * boundary; the gaps stay zero. A model belongs to one thread. */

#define MODEL_DIMS 2
struct model_tensor {
    /* mlp, as PyTorch: "layers.0.weight" (out,in), "layers.0.bias" (out); gpt: see gpt.h */
    char name[48];
    int dims;
    int64_t shape[MODEL_DIMS];
    size_t offset, count; /* floats */
    bool decay;           /* whether weight decay applies: see model_open */
};

/* A micro-batch in device memory. rows may be 0.
 *
 * A row is what the sampler draws: for mlp a sample, for gpt a window of `context` tokens with the token that
 * follows each as its label. A row's loss, and what it adds to tally.correct, is the mean over its labels; so
 * the caller counts rows whatever the model. */
struct model_batch {
    const float *x;       /* mlp: (rows,in) */
    const float *y;       /* mlp: (rows,out), for mse */
    const int32_t *token; /* gpt: (rows,context) */
    const int32_t *label; /* for cross-entropy; mlp: (rows), gpt: (rows,context) */
    int64_t rows;
    /* gpt with dropout: masks follow from (spec seed, step, sample, place in the model) alone, not from who
     * computes what. sample: (rows), who each row is: its index in the data set. */
    const int64_t *sample;
    int64_t step;
    bool same_params; /* as in this model's last pass: what was made of them then holds */
};

struct model;
struct model_ops {
    void (*free)(struct model *m);
    void (*init)(const struct model *m, float *params, uint64_t seed);
    void (*evaluate)(struct model *m, const float *params, const struct model_batch *b,
                     struct device_tally *tally);
    void (*train)(struct model *m, const float *params, float *grads, const struct model_batch *b,
                  float scale, struct device_tally *tally,
                  void (*ready)(void *arg, size_t offset, size_t count), void *arg);
    double (*flops)(const struct model *m, int64_t rows);
};

struct model {
    const struct model_ops *ops;
    struct device *device;
    int64_t in, out, max_rows; /* mlp: widths; gpt: in is the context, out the vocabulary */
    struct model_tensor *tensors;
    size_t tensor_count;
    size_t count;       /* floats of parameters, gaps included */
    size_t parameters;  /* without the gaps */
    float *activations; /* one allocation, everything below lies in it */
    size_t activation_bytes;
};

/* Builds the model of spec->model for a data set of the given widths: inputs and outputs of a sample; for
 * gpt, tokens of a window (the model's context) and symbols of the vocabulary (at most the model's, which is
 * that of the data when spec->model.vocab is 0). INVALID_ARGUMENT when they do not fit. Weight decay applies
 * to every tensor of an mlp; of a gpt, as GPT-3 and nanoGPT have it, to matrices and embeddings, not to
 * biases and layer norms. */
MUST_CHECK enum err_code model_open(struct model **out, const struct train_spec *spec, enum loss_type loss,
                                    int64_t data_in, int64_t data_out, int64_t max_rows,
                                    struct device *device, struct err *e);
void model_free(struct model *m); /* NULL is fine */

/* mlp: PyTorch's default for Linear, weights and biases uniform in (-1/sqrt(in), 1/sqrt(in)). gpt: GPT-2's,
 * see gpt.h. The same for a seed on every machine, whatever the device. */
void model_init(const struct model *m, float *params, uint64_t seed);

/* Floating-point operations of training on that many rows, by the usual count: 6 for each parameter of a
 * matrix product and sample (token); gpt, besides, 6 layers context width a token for causal attention
 * (Chowdhery et al., arXiv 2204.02311, appendix B, halved for the mask). Embedding look-ups count nothing. */
double model_flops(const struct model *m, int64_t rows);

/* Forward and loss; tally (device memory) += over the batch's rows. */
void model_evaluate(struct model *m, const float *params, const struct model_batch *b,
                    struct device_tally *tally);

/* Forward, loss and backward: grads += scale * d (sum of the rows' losses) / d params. `ready`, unless NULL,
 * is called for each piece of grads that is final, in backward order: pieces touch, and go from the array's
 * end to its start. */
typedef void (*model_ready_fn)(void *arg, size_t offset, size_t count);
void model_train(struct model *m, const float *params, float *grads, const struct model_batch *b, float scale,
                 struct device_tally *tally, model_ready_fn ready, void *arg);

#endif
