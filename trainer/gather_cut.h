#ifndef DDP_TRAINER_GATHER_CUT_H
#define DDP_TRAINER_GATHER_CUT_H

#include <stddef.h>

/* shard: optimizer. How the parameters are cut into the pieces in which ranks gather them, in the order of the forward pass. */

#define GATHER_LANES 2 /* the most that sync_gather_lanes wants */

/* lanes: 1, or 2 if two ends send at the same time: then a lane ends at `middle`, where the part of the second end begins. Returns the number
 * of pieces. Piece i of lane l is [cuts[k], cuts[k + 1]) with k = l * (pieces + 1) + i. The caller frees *cuts. */
size_t gather_cut(size_t floats, size_t lanes, size_t middle, size_t **cuts);

#endif
