#ifndef DDP_TRAINER_ENGINE_STEP_H
#define DDP_TRAINER_ENGINE_STEP_H

#include "trainer/engine/engine.h"

/* This rank's part of a step. The caller, which has the group, calls these in order and exchanges in between:
 *
 *     step_begin      how many samples the step has; votes go into s->tail
 *     step_backward   gradients, and the loss and votes behind them
 *                     ... gradients are exchanged ...
 *     step_update     the optimizer
 *                     ... parameters are exchanged ...
 *     step_end        waits for the device: the loss, and what all ranks voted
 *
 * The device may be far behind the host: nothing waits for it before step_end. The outcome stays in device
 * memory until then. So a loss that is not a number is found after the update, but before the step is used
 * for anything. */

struct step {
    int64_t local, global; /* samples: of this rank, of all */
    float tail[TAIL_FLOATS];
    bool measured; /* the gradient's norm is wanted */
};

/* How the step's results get to the other ranks. */
struct step_route {
    int64_t divisor; /* of gradient sums */
    float *carrier;  /* n->params.data or n->grads.data, or another array of as many floats: its tail has the
                        loss and the votes */
    /* Called for each piece of the gradients that is final, from the end to the start; NULL: not called. */
    void (*ready)(void *arg, size_t offset, size_t count);
    void *arg;
};

void step_begin(struct engine *n, struct step *s);
MUST_CHECK enum err_code step_backward(struct engine *n, const struct step *s, const struct step_route *route,
                                       struct err *e);
void step_update(struct engine *n, struct step *s);

/* voted: the carrier's tail holds all ranks' sums now; else s->tail becomes 0, but for the loss nobody reads
 * it. all_ranks: the step's loss is the sum in the tail, else this rank's own. Leaves the step in n->loss and
 * advances step, samples and cursor; *epoch_ended. Errors: OUT_OF_RANGE, this rank's loss is not a number;
 * ABORTED, another's is not; the device's. */
struct step_agreement {
    const float *carrier;
    bool voted, all_ranks;
    int rank, world_size; /* for the error's text */
};
MUST_CHECK enum err_code step_end(struct engine *n, struct step *s, const struct step_agreement *agreed,
                                  bool *epoch_ended, struct err *e);

#endif
