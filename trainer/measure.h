#ifndef DDP_TRAINER_MEASURE_H
#define DDP_TRAINER_MEASURE_H

#include "trainer/trainer.h"

/* `train.measure`, of the jobs that `ddpctl check --deep` submits: the ranks measure their machines and train nothing.
 *
 * All ranks measure the same thing at the same time, in rounds that begin with a barrier. They measure the rates of the device
 * (device/rates.h), and then, for the same time, all-reduces between nodes (measure_network.h). Rank 0 prints a JSON line for each
 * rank on stdout, with rank, node, local_rank, device and model. For each rate and for `allreduce`, the line has the median of the
 * rounds as NAME, and the best round as NAME_best.
 *
 * For tests: with DDP_TEST_SLOW_NODE="box3:8" the ranks on that node are idle for seven eighths of the time that they measure. */
MUST_CHECK enum err_code trainer_measure(struct trainer *t, struct err *e);
/* Sleeps until the time since `from` is `slower` times what it is at the call. */
void measure_idle(int64_t from, double slower);

#endif
