#ifndef DDP_TRAINER_OPTIM_SCHEDULE_H
#define DDP_TRAINER_OPTIM_SCHEDULE_H

#include "base/job/job.h"

/* The learning rate of a step: base * warm-up, and a decay towards min_lr over the whole run.
 *   warm-up: min(1, (step + 1) / warmup)  (Goyal et al., arXiv 1706.02677)
 *   linear: min + (base - min) (1 - progress)
 *   cosine: min + (base - min) (1 + cos(pi progress)) / 2  (Loshchilov and Hutter, arXiv 1608.03983)
 * progress is the part of the run that is done, 0 to 1. It is counted in samples, so it does not jump when a
 * job goes on at another world size. */
double schedule_lr(const struct train_spec *spec, int64_t step, double progress);

#endif
