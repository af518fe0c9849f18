#ifndef DDP_TRAINER_MODEL_MODEL_H
#define DDP_TRAINER_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/device/device.h"

/* Models: a table of functions. Parameters and gradients are two flat float arrays that the caller owns; both
 * have the same layout, and a tensor is an offset into them. Tensors lie in the order of the forward pass,
 * each on a 16-float boundary; the gaps stay zero. A model belongs to one thread. */

#define MODEL_DIMS 2
struct model_tensor {
    /* mlp: as in PyTorch, "layers.0.weight" (out,in), "layers.0.bias" (out). gpt: see gpt.h. */
    char name[48];
    int dims;
    int64_t shape[MODEL_DIMS];
    size_t offset, count; /* floats */
    bool decay;           /* weight decay applies to it: see model_open */
    int matrices;   /* of a hidden layer, side by side in it: q, k and v are 3; 0: embedding, head, vector */
    bool out_first; /* each matrix is (out,in), else (in,out) */
    bool narrow_only; /* if the model has a bf16 copy, nothing else of this tensor is read */
};

/* Called before a pass reads parameters below `end`, or sets gradients. After a call with model->count it may set all
 * gradients. */
typedef void (*model_need_fn)(void *arg, size_t end);

/* A micro-batch in device memory. rows may be 0.
 *
 * A row is a sample of the data set: for mlp one sample, for gpt a window of `context` tokens, whose labels
 * are the tokens that follow. A row's loss, and its part of tally.correct, is the mean over its labels.
 * Therefore the caller counts rows for every model. */
struct model_batch {
    const float *x;       /* mlp: (rows,in) */
    const float *y;       /* mlp: (rows,out), for mse */
    const int32_t *token; /* gpt: (rows,context) */
    const int32_t *label; /* for cross-entropy; mlp: (rows), gpt: (rows,context) */
    int64_t rows;
    /* gpt with dropout: masks depend only on (spec seed, step, sample, place in the model), not on the rank
     * that computes a row. sample (rows): the index of each row in the data set. */
    const int64_t *sample;
    int64_t step;
    /* `narrowed` holds these parameters: they are those of this model's last pass, or the optimizer has written both. */
    bool same_params;
    bool set_grads;     /* training sets grads, whatever they hold, instead of adding to them */
    model_need_fn need; /* for training; NULL: all parameters are there */
    void *need_arg;
};

static inline void model_need(const struct model_batch *b, size_t end)
{
    if (b->need)
        b->need(b->need_arg, end);
}

/* A stretch of the forward pass. Before it, the pass needs the parameters below `need`. Backward reports the gradients from
 * `begin` up to the next unit's begin as one piece. The first unit begins at 0. */
struct model_unit {
    size_t begin, need;
    double work; /* operations, as a part of those of all units */
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
    size_t (*units)(const struct model *m, struct model_unit *out);
};

struct model {
    const struct model_ops *ops;
    struct device *device;
    int64_t in, out, max_rows; /* in, out: widths of an mlp; context and vocabulary of a gpt */
    struct model_tensor *tensors;
    size_t tensor_count;
    size_t count;       /* floats in the array of parameters, including the gaps */
    size_t parameters;  /* number of parameters, without the gaps */
    void *narrowed;     /* the parameters as bf16, which products read, in device memory; NULL: none */
    float *activations; /* one allocation for all activations */
    size_t activation_bytes;
    size_t narrowed_bytes; /* that were allocated for it */
};

/* The memory that training takes for each float of the array of parameters, besides activations: so many arrays of floats
 * (parameters, gradients, moments and others), and the parameters as bf16 if products read those. */
static inline double model_state_bytes(double arrays, bool narrowed)
{
    return arrays * (double)sizeof(float) + (narrowed ? (double)device_size(DEVICE_BF16) : 0.0);
}

/* Builds the model of spec->model for a data set. mlp: data_in and data_out are the widths of a sample's
 * input and output. gpt: data_in is the number of tokens of a window, which must be the model's context;
 * data_out is the number of symbols, at most the model's vocabulary (which is data_out if spec->model.vocab
 * is 0). INVALID_ARGUMENT: model and data do not fit together. Weight decay applies to every tensor of an
 * mlp; in a gpt, as in GPT-3 and nanoGPT, to matrices and embeddings, but not to biases and layer norms.
 * extra_arrays: arrays as long as the parameters that the caller will allocate on the device, besides
 * parameters, gradients and two moments; less than 0 if it has less. A gpt leaves memory for them when it chooses its activations. */
MUST_CHECK enum err_code model_open(struct model **out, const struct train_spec *spec, enum loss_type loss,
                                    int64_t data_in, int64_t data_out, int64_t max_rows, double extra_arrays,
                                    struct device *device, struct err *e);
void model_free(struct model *m); /* NULL is fine */

/* Sets the initial parameters. mlp: PyTorch's default for Linear, weights and biases uniform in (-1/sqrt(in),
 * 1/sqrt(in)). gpt: GPT-2's, see gpt.h. The same seed gives the same parameters on every machine and
 * device. */
void model_init(const struct model *m, float *params, uint64_t seed);

/* Returns the floating-point operations of training on that many rows, by the usual count: 6 for each
 * parameter of a matrix product and each sample (token). A gpt has 6 layers context width more for each
 * token, for causal attention (Chowdhery et al., arXiv 2204.02311, appendix B, halved for the mask).
 * Embedding look-ups count nothing. */
double model_flops(const struct model *m, int64_t rows);
/* Returns the number of units, in the order of the forward pass. out: room for all of them; NULL: they are only counted. */
size_t model_units(const struct model *m, struct model_unit *out);

/* Forward pass and loss. Adds the sums over the batch's rows to tally (device memory). */
void model_evaluate(struct model *m, const float *params, const struct model_batch *b,
                    struct device_tally *tally);

/* Forward pass, loss and backward pass: grads += scale * d (sum of the rows' losses) / d params, or grads = that with
 * set_grads, also of a batch without rows. Unless `ready` is NULL, it is called for each piece of grads as soon as the
 * piece is final, in backward order: adjacent pieces from the end of the array to its start. */
typedef void (*model_ready_fn)(void *arg, size_t offset, size_t count);
void model_train(struct model *m, const float *params, float *grads, const struct model_batch *b, float scale,
                 struct device_tally *tally, model_ready_fn ready, void *arg);

#endif
