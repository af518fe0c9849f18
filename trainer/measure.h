#ifndef DDP_TRAINER_MEASURE_H
#define DDP_TRAINER_MEASURE_H

#include "trainer/trainer.h"

/* `train.measure`, of the jobs that `ddpctl check --deep` submits: the ranks measure their machines and train nothing.
 *
 * All ranks measure the same thing at the same time, in rounds, each of which begins with a barrier: first the rates of the device
 * (device/rates.h), then, for as long again, all-reduces between nodes (measure_network.h). After the first part, rank 0 prints a JSON
 * line for each rank on stdout: rank, node, local_rank, device, model, and for each rate the median of the rounds and the best of them,
 * as NAME and NAME_best. After the second part, it prints another line for each rank, "partners " and JSON: rank, and `partners`, a
 * list of rank, allreduce and allreduce_best, and `error` where the rates are 0 because the two could not exchange data. Older versions
 * of ddpctl count the lines that begin with a brace.
 *
 * For tests: with DDP_TEST_SLOW_NODE="box3:8" the ranks on that node are idle for seven eighths of the time that they measure. */
MUST_CHECK enum err_code trainer_measure(struct trainer *t, struct err *e);
/* Sleeps until the time since `from` is `slower` times what it is at the call. */
void measure_idle(int64_t from, double slower);

#endif
