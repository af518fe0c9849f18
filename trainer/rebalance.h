#ifndef DDP_TRAINER_REBALANCE_H
#define DDP_TRAINER_REBALANCE_H

#include "trainer/trainer.h"

/* `balance: speed`: slow ranks take fewer samples of a step. Each rank measures how long it computes for its samples, without the
 * time in which it waits for others. Some steps after the start of a generation, and then now and then where the job
 * logs, all ranks gather these times and divide the step's samples by them (base/job/balance.h). All have the same numbers, so
 * all compute the same portions.
 *
 * Portions change if the slowest rank would need at least 5 % less time for its samples. Once they stand, two decisions in a row
 * must find so, because times vary. If a change turns out to have made the slowest rank slower, the portions before it come back, and
 * the next change needs twice as many decisions in a row.
 *
 * The gradient stays the mean over the global batch: each sample's gradient is divided by the number of samples of all ranks, and
 * the ranks' sums are added up. Only the order of additions changes. Therefore a snapshot keeps the portions (snapshot_place), and
 * survivors do (engine_take_portions), for a group of the same size. */

/* When the run begins or goes on in a generation: forgets what was measured in the one before. */
void rebalance_begin(struct trainer *t);
void rebalance_end(struct trainer *t);

/* Around the computation of a step. A device that computes asynchronously is timed in few steps, because that costs time: then
 * pieces of the gradients are held back until all of them are there. */
MUST_CHECK enum err_code rebalance_step_begin(struct trainer *t, struct err *e);
bool rebalance_hold_piece(struct trainer *t, size_t offset,
                          size_t count); /* true: reported later, in the same order */
MUST_CHECK enum err_code rebalance_gradients_done(struct trainer *t, struct err *e);
void rebalance_step_end(struct trainer *t, int64_t local_samples);
/* The step has waited for `ns`. In this time it neither computed nor waited for other ranks. */
void rebalance_waited(struct trainer *t, int64_t ns);

/* After a step, before the snapshot that is due there. Collective in some steps: divides the samples anew if that is due. */
MUST_CHECK enum err_code rebalance_deal(struct trainer *t, struct err *e);

/* Adds this rank's portion and time to a report. */
struct metric_line;
void rebalance_report(const struct trainer *t, struct metric_line *l);

#endif
