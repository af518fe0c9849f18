#ifndef DDP_TRAINER_OPTIM_OPTIM_H
#define DDP_TRAINER_OPTIM_OPTIM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/job/job.h"
#include "trainer/device/device.h"

/* Optimizers over flat arrays: a vtable. Moments are one allocation of state_count arrays of `count` floats.
 *
 * sgd, as torch.optim.SGD: d = scale g + decay p; v = momentum v + d; p -= lr v (nesterov: p -= lr (d +
 * momentum v)). adamw (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2, with decay scaled by lr as
 * torch.optim.AdamW has it): m = b1 m + (1 - b1) d; v = b2 v + (1 - b2) d^2; p = (1 - lr decay) p - lr m^ /
 * (sqrt(v^) + eps), where m^ = m / (1 - b1^t), v^ = v / (1 - b2^t), d = scale g. Weight decay applies to
 * every parameter but those of optim_exempt. */

struct optim;
struct optim_run { /* a part of the arrays */
    size_t offset, count;
    bool decay;
};

struct optim_ops {
    const char *name;
    size_t state_count;
    const char *state_names[2]; /* in snapshots: "<tensor>.<name>" */
    void (*update)(struct optim *o, const struct optim_run *run, float *params, const float *grads, double lr,
                   const float *scale);
};

/* Of the gradients of one step. */
struct optim_measure {
    double squares; /* sum of all */
    float scale;    /* by which clipping multiplies them */
};

struct optim {
    const struct optim_ops *ops;
    struct device *device;
    size_t count;
    double momentum, beta1, beta2, eps, weight_decay, clip;
    bool nesterov;
    float *state;                  /* state_count arrays of count floats; NULL when there are none */
    struct optim_measure *measure; /* device memory */
    size_t state_count;
    struct optim_run *runs; /* touch, and cover the arrays */
    size_t run_count, run_cap;
    int64_t steps; /* updates so far; part of the state */
};

MUST_CHECK enum err_code optim_open(struct optim **out, const struct train_spec *spec, size_t count,
                                    struct device *device, struct err *e);
void optim_free(struct optim *o); /* NULL is fine */

/* No weight decay for params[offset, offset + count). Call in rising order, before the first update. */
void optim_exempt(struct optim *o, size_t offset, size_t count);

/* Clips by the whole gradient's 2-norm, in double precision, as torch.nn.utils.clip_grad_norm_ does:
 * gradients times min(1, clip / (norm + 1e-6)). measure: take the norm even where nothing is clipped. The
 * host waits for nothing. */
void optim_update(struct optim *o, float *params, const float *grads, double lr, bool measure);
/* What the last update that measured found. */
double optim_norm(struct optim *o);

extern const struct optim_ops optim_sgd, optim_adamw;

#endif
