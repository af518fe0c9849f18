#ifndef DDP_BASE_JOB_BALANCE_H
#define DDP_BASE_JOB_BALANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* `balance: speed`: how many samples of a step each rank takes, its portion, so that all ranks compute for the same time.
 * Nothing here measures. All is computed in integers, so every rank gets the same from the same numbers. */

#define BALANCE_SAMPLES_MOST (INT64_C(1) << 22) /* of a step */
#define BALANCE_NS_MOST (INT64_C(1) << 40)      /* of a time in balance_speed */

struct balance_speed { /* of a rank */
    int64_t sample_ns; /* for one sample: 1 to BALANCE_NS_MOST */
    int64_t update_ns; /* besides, once in a step: 0 to BALANCE_NS_MOST */
};

/* Divides `samples` among ranks so that the slowest one is as fast as possible. Each rank gets at least one sample; samples: at
 * least ranks, at most BALANCE_SAMPLES_MOST. Ranks that would be equally fast are served in their order. */
void balance_divide(const struct balance_speed *speeds, int ranks, int64_t samples, int64_t *portions);
/* The time of the rank that takes longest for a step. */
int64_t balance_slowest_ns(const struct balance_speed *speeds, int ranks, const int64_t *portions);
/* Whether the slowest rank would need at least 5 % less time. */
bool balance_is_faster(const struct balance_speed *speeds, int ranks, const int64_t *from, const int64_t *to);

struct balance_rank {
    int rank;
    const char *node;
    int64_t samples;
    double sample_ms; /* for one sample; 0: not measured */
};
/* "balance: box1 24, box2 8 samples of 32: box2 takes 3.1 times as long". Names the ranks where a node has ranks of
 * unlike portions, and only the smallest and the largest portion of many ranks. "Times as long" is for one sample, beside the
 * fastest rank; left out if that is less than 5 % more, or not measured. Ranks are given in their order. */
void balance_print(struct buf *out, const struct balance_rank *ranks, size_t count);

#endif
