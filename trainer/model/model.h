#ifndef DDP_TRAINER_MODEL_MODEL_H
#define DDP_TRAINER_MODEL_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job.h"
#include "trainer/device/device.h"

/* Models: a vtable. Parameters and gradients are two flat float arrays that the caller owns and hands in; a
 * tensor is an offset, and both arrays have the same layout. Tensors lie in forward order, each on a 16-float
 * boundary; the gaps stay zero. A model belongs to one thread. */

#define MODEL_DIMS 2
struct model_tensor {
    char name[48]; /* as PyTorch names them: "layers.0.weight" (out,in), "layers.0.bias" (out) */
    int dims;
    int64_t shape[MODEL_DIMS];
    size_t offset, count; /* floats */
};

/* A micro-batch in device memory. rows may be 0. */
struct model_batch {
    const float *x;       /* (rows,in) */
    const float *y;       /* (rows,out), for mse */
    const int32_t *label; /* (rows), for cross-entropy */
    int64_t rows;
};

struct model;
struct model_ops {
    void (*free)(struct model *m);
    void (*init)(const struct model *m, float *params, uint64_t seed);
    /* Leaves the outputs (rows,out) in m->output. */
    void (*forward)(struct model *m, const float *params, const struct model_batch *b);
    /* From d loss / d output, in m->output_grad. */
    void (*backward)(struct model *m, const float *params, float *grads, const struct model_batch *b,
                     void (*ready)(void *arg, size_t offset, size_t count), void *arg);
};

struct model {
    const struct model_ops *ops;
    struct device *device;
    int64_t in, out, max_rows;
    enum loss_type loss; /* LOSS_MSE or LOSS_CROSS_ENTROPY */
    struct model_tensor *tensors;
    size_t tensor_count;
    size_t count;       /* floats of parameters, gaps included */
    size_t parameters;  /* without the gaps */
    float *activations; /* one allocation, everything below lies in it */
    size_t activation_bytes;
    float *output, *output_grad; /* (max_rows,out) */
};

/* Builds the model of spec->model for a data set of the given widths; INVALID_ARGUMENT when they do not fit.
 */
MUST_CHECK enum err_code model_open(struct model **out, const struct train_spec *spec, enum loss_type loss,
                                    int64_t data_in, int64_t data_out, int64_t max_rows,
                                    struct device *device, struct err *e);
void model_free(struct model *m); /* NULL is fine */

/* PyTorch's default for Linear: weights and biases uniform in (-1/sqrt(in), 1/sqrt(in)). The same for a seed
 * on every machine, whatever the device. */
void model_init(const struct model *m, float *params, uint64_t seed);

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
