#ifndef DDP_TRAINER_OPTIM_OPTIM_H
#define DDP_TRAINER_OPTIM_OPTIM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/device/device.h"
#include "trainer/device/ranges.h"

/* Optimizers over flat arrays: a vtable. Moments are one allocation. Of sgd and adamw it is state_count
 * arrays of `count` floats; of muon an array of `count` floats, which holds the first moment of each
 * parameter, and behind it the second moments of the parameters that AdamW updates.
 *
 * sgd, as torch.optim.SGD: d = scale g + decay p; v = momentum v + d; p -= lr v (nesterov: p -= lr (d +
 * momentum v)). adamw (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2, with decay scaled by lr as
 * torch.optim.AdamW has it): m = b1 m + (1 - b1) d; v = b2 v + (1 - b2) d^2; p = (1 - lr decay) p - lr m^ /
 * (sqrt(v^) + eps), where m^ = m / (1 - b1^t), v^ = v / (1 - b2^t), d = scale g. Weight decay applies to
 * every parameter but those of optim_exempt.
 *
 * muon (Jordan et al., 2024; as in MuLoCo, arXiv 2505.23725): the matrices of optim_matrix by device_muon
 * (trainer/device/device.h), whose update is multiplied by sqrt(max(1, out / in)); every other parameter
 * by adamw, whose lr keeps its proportion to the lr of the matrices. */

struct optim;
struct optim_run { /* a range of the arrays with the same weight decay */
    size_t offset, count;
    bool decay;
    bool matrix;   /* muon: all of it is matrices */
    size_t second; /* muon: where the second moments begin in the state */
};
#define OPTIM_MOMENTS 3
#define OPTIM_NONE SIZE_MAX

struct optim_ops {
    const char *name;
    size_t state_count;
    const char *state_names[OPTIM_MOMENTS]; /* names in snapshots: "<tensor>.<name>" */
    void (*update)(struct optim *o, const struct optim_run *run, float *params, const float *grads, double lr,
                   const float *scale);
    /* muon; NULL: matrices are parameters as all others. room: bytes of device memory that an update
     * needs. */
    size_t (*room)(const struct optim *o);
    void (*update_matrices)(struct optim *o, float *params, const float *grads, double lr,
                            const float *scale);
};

/* Measured from the gradients of one step, in device memory. */
struct optim_measure {
    double squares; /* sum of the squares of all gradients */
    float scale;    /* factor by which clipping multiplies the gradients */
};

struct optim {
    const struct optim_ops *ops;
    struct device *device;
    /* Of the flat arrays, `count` floats from `first` on are this optimizer's; `whole` is the size of the arrays. Offsets of
     * runs and moments count from `first`. */
    size_t first, count, whole;
    bool part; /* optim_take_part was called */
    /* Of a part: where the blocks begin whose squares are summed together, block_count + 1 of them, from `first` */
    size_t *blocks, block_count;
    double *sums; /* device memory: the squares of each block of the part */
    double momentum, beta1, beta2, eps, weight_decay, clip;
    bool nesterov;
    double adamw_rate;             /* muon: the learning rate of AdamW, as a multiple of lr */
    float *state;                  /* the moments, in device memory; NULL if there are none */
    size_t floats;                 /* in state */
    size_t state_bytes;            /* that were allocated for it */
    size_t whole_floats;           /* in a state of the whole arrays, as snapshots have it */
    struct optim_measure *measure; /* device memory */
    size_t state_count;            /* kinds of moments */
    struct optim_run *runs;        /* adjacent runs that cover the arrays */
    size_t run_count, run_cap;
    struct optim_run *whole_runs; /* of a part: of the whole arrays; `second` is that of a whole state */
    size_t whole_run_count;
    struct device_ranges ranges;    /* the runs that AdamW updates, if the device takes them all at once */
    uint16_t *narrowed;             /* see optim_narrow_to: from `first` on; NULL: nowhere */
    struct device_matrix *matrices; /* muon: the most work first */
    size_t matrix_count, matrix_cap;
    enum device_type kept; /* device_muon's */
    void *room;            /* device_muon's */
    size_t room_bytes;
    int64_t steps; /* updates so far; part of the state */
};

/* Opens an optimizer without memory. After that the caller describes tensors by optim_exempt and
 * optim_matrix, in rising order, and then calls optim_alloc. */
void optim_open(struct optim **out, const struct train_spec *spec, size_t count, struct device *device);
void optim_free(struct optim *o); /* NULL is fine */
/* Takes over other numbers from the job's spec, between two updates. The moments stay: SGD's momentum may not become 0, or
 * more than 0. The learning rate is an argument of each update. */
void optim_tune(struct optim *o, const struct train_spec *spec);

/* From now on each update also writes the parameters that it changes to `bf16`. This is device memory of the caller with room for the
 * parameters of the whole model; NULL: updates write no bf16. A part of an optimizer writes its own part. Returns whether updates do so:
 * a device that `narrows` can do it for every optimizer and for parts; other devices only for a whole AdamW, if they have adamw_ranges. */
bool optim_narrow_to(struct optim *o, void *bf16);

/* Exempts params[offset, offset + count) from weight decay. */
void optim_exempt(struct optim *o, size_t offset, size_t count);
/* Says that the tensor (rows,cols) at the offset is one matrix of a hidden layer, or several side by side.
 * out_first: each is (out,in), else (in,out). Optimizers other than muon ignore this. */
void optim_matrix(struct optim *o, size_t offset, int64_t rows, int64_t cols, int side_by_side,
                  bool out_first);
/* Between these and optim_alloc: the optimizer is for [blocks[0], blocks[count]) of the arrays only, which cuts no tensor of
 * optim_matrix. Before an update that clips or measures, the caller adds up the squares of the blocks of all parts. The blocks of
 * the whole arrays do not depend on the number of parts, and so the norm does not. */
void optim_take_part(struct optim *o, const size_t *blocks, size_t count);
MUST_CHECK enum err_code optim_alloc(struct optim *o, struct err *e);

/* Returns where moment i of the tensor at this offset begins in a state of the whole arrays, or OPTIM_NONE if the tensor has no
 * such moment. */
size_t optim_moment_at(const struct optim *o, size_t i, size_t offset);

/* The arrays of which a state consists, one after the other. */
struct optim_array {
    size_t at, whole; /* in a state of the whole arrays, in floats */
    size_t first, count,
        own; /* this optimizer has [first, first + count) of the array, at `own` in its state */
};
size_t optim_arrays(const struct optim *o, struct optim_array out[OPTIM_MOMENTS]);
/* Where array i is cut if the parameters are cut at this offset, where no matrix is. */
size_t optim_array_cut(const struct optim *o, size_t i, size_t offset);

/* Of a part: the squares of its gradients, by block, which the caller adds up over all parts and puts back before the update. The
 * first waits for the device; the result is not valid if the device's next wait fails. */
void optim_part_squares(struct optim *o, const float *grads, double *out);
void optim_put_squares(struct optim *o, double squares);
/* Clips by the 2-norm of the whole gradient, in double precision, as torch.nn.utils.clip_grad_norm_ does:
 * gradients times min(1, clip / (norm + 1e-6)). measure: computes the norm even if nothing is clipped. The
 * host does not wait. */
void optim_update(struct optim *o, float *params, const float *grads, double lr, bool measure);
/* Returns the norm of the last update that computed it. Waits for the device. */
double optim_norm(struct optim *o);

/* AdamW's update of a run whose moments begin at m and v. */
void optim_adamw_run(const struct optim *o, const struct optim_run *run, float *params, const float *grads,
                     double lr, const float *scale, float *m, float *v);
/* The same for all runs of `ranges`. */
void optim_adamw_ranges(const struct optim *o, float *params, const float *grads, double lr,
                        const float *scale);

extern const struct optim_ops optim_sgd, optim_adamw, optim_muon;

#endif
