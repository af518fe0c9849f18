#ifndef DDP_TRAINER_MEASURE_H
#define DDP_TRAINER_MEASURE_H

#include "trainer/trainer.h"

/* `train.measure`, of the jobs that `ddpctl check --deep` submits: the ranks measure their machines and train nothing.
 *
 * All ranks measure the same thing at the same time, in rounds, each of which begins with a barrier: first the rates of the device
 * (device/rates.h), then, for as long again, all-reduces between nodes (measure_network.h). Rank 0 prints a JSON line for each rank on
 * stdout: rank, node, local_rank, device, model, and for each rate, and for `allreduce`, the median of the rounds and the best of them,
 * as NAME and NAME_best.
 *
 * For tests: with DDP_TEST_SLOW_NODE="box3:8" the ranks on that node are idle for seven eighths of the time that they measure. */
MUST_CHECK enum err_code trainer_measure(struct trainer *t, struct err *e);
/* Sleeps so long that the work since `from` takes `slower` times as long. */
void measure_idle(int64_t from, double slower);

#endif
