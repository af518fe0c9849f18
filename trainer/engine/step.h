#ifndef DDP_TRAINER_ENGINE_STEP_H
#define DDP_TRAINER_ENGINE_STEP_H

#include "trainer/engine/engine.h"

/* This rank's part of a step. The caller, which has the group, calls these functions in order and exchanges
 * data in between:
 *
 *     step_begin      sets how many samples the step has; the caller writes votes to s->tail
 *     step_backward   computes the gradients, and the loss and votes after them
 *                     ... gradients are exchanged ...
 *     step_update     runs the optimizer
 *                     ... parameters are exchanged ...
 *     step_end        waits for the device; returns the loss, and the votes of all ranks
 *
 * The device may be far behind the host, because nothing waits for it before step_end. The outcome stays in
 * device memory until then. So a loss that is not a number is found after the update, but before the step is
 * used for anything. */

struct step {
    int64_t local, global; /* samples of this rank, and of all ranks */
    float tail[TAIL_FLOATS];
    bool measured; /* the norm of the gradient is needed */
};

/* How the step's results get to the other ranks. */
struct step_route {
    int64_t divisor; /* divisor of gradient sums */
    /* n->params.data, n->grads.data, or another array of that size; its tail has the loss and the votes. */
    float *carrier;
    /* Called for each piece of the gradients when it is final, from the end to the start; NULL: none. */
    void (*ready)(void *arg, size_t offset, size_t count);
    void *arg;
};

void step_begin(struct engine *n, struct step *s);
MUST_CHECK enum err_code step_backward(struct engine *n, const struct step *s, const struct step_route *route,
                                       struct err *e);
/* narrow: nothing changes the parameters before the next step, so the update may also write the model's bf16 copy of them. */
void step_update(struct engine *n, struct step *s, bool narrow);

/* voted: the carrier's tail holds the sums over all ranks. If not, s->tail becomes 0, and only its loss is
 * used. all_ranks: the step's loss is the sum in the tail, else this rank's own. Stores the step's results in
 * n->loss, and advances step, samples and cursor; sets *epoch_ended. OUT_OF_RANGE: this rank's loss is not a
 * number. ABORTED: another rank's loss is not a number. Else the device's errors. */
struct step_agreement {
    const float *carrier;
    bool voted, all_ranks;
    int rank, world_size; /* for the error's text */
};
MUST_CHECK enum err_code step_end(struct engine *n, struct step *s, const struct step_agreement *agreed,
                                  bool *epoch_ended, struct err *e);
/* In place of step_end, when the group is lost after step_update: advances step, samples and cursor without waiting
 * for the device, whose wait would fail with the group. The update is queued, so it is part of the parameters when
 * the device can be waited for again. n->loss stays that of the step before until step_settle. */
void step_count(struct engine *n, const struct step *s);
/* After the group has ended: waits for the device, and reads the loss of a step that was counted without a wait. If this loss is
 * not a number, the next step finds it. Returns the device's errors. */
MUST_CHECK enum err_code step_settle(struct engine *n, struct err *e);

#endif
