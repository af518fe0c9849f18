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
struct optim_run { /* a range of the arrays with the same weight decay */
    size_t offset, count;
    bool decay;
};

struct optim_ops {
    const char *name;
    size_t state_count;
    const char *state_names[2]; /* names in snapshots: "<tensor>.<name>" */
    void (*update)(struct optim *o, const struct optim_run *run, float *params, const float *grads, double lr,
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
    size_t count;
    double momentum, beta1, beta2, eps, weight_decay, clip;
    bool nesterov;
    float *state;                  /* state_count arrays of count floats; NULL if state_count is 0 */
    struct optim_measure *measure; /* device memory */
    size_t state_count;
    struct optim_run *runs; /* adjacent runs that cover the arrays */
    size_t run_count, run_cap;
    int64_t steps; /* updates so far; part of the state */
};

MUST_CHECK enum err_code optim_open(struct optim **out, const struct train_spec *spec, size_t count,
                                    struct device *device, struct err *e);
void optim_free(struct optim *o); /* NULL is fine */

/* Exempts params[offset, offset + count) from weight decay. Call in rising order, before the first update. */
void optim_exempt(struct optim *o, size_t offset, size_t count);

/* Clips by the 2-norm of the whole gradient, in double precision, as torch.nn.utils.clip_grad_norm_ does:
 * gradients times min(1, clip / (norm + 1e-6)). measure: computes the norm even if nothing is clipped. The
 * host does not wait. */
void optim_update(struct optim *o, float *params, const float *grads, double lr, bool measure);
/* Returns the norm of the last update that computed it. Waits for the device. */
double optim_norm(struct optim *o);

extern const struct optim_ops optim_sgd, optim_adamw;

#endif
