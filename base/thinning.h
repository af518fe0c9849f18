#ifndef DDP_BASE_THINNING_H
#define DDP_BASE_THINNING_H

#include <stdbool.h>
#include <stddef.h>

/* Chooses the points of a curve that a picture needs. The points are divided into buckets of equal numbers, and each bucket keeps
 * its smallest, its largest and its last value, and the first that is not a finite number. So a spike and a NaN
 * never disappear. At most THINNING_KEPT points remain of each bucket. Any thread. */
#define THINNING_KEPT 4

/* Sets keep[i] for the points that remain, and returns their number. buckets 0, or as many buckets as points: all remain. */
size_t thinning_choose(const double *values, size_t count, size_t buckets, bool *keep);

#endif
