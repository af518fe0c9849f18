#ifndef DDP_TRAINER_RANK_NUMBER_H
#define DDP_TRAINER_RANK_NUMBER_H

#include <stdint.h>

/* For tests that must not depend on the clock: the number of a rank in an environment variable, which has one for each rank, as
 * "73,36". Returns 0 if there is none. */
int64_t rank_number(const char *variable, int rank);

#endif
