#ifndef DDP_TRAINER_ALGORITHMS_H
#define DDP_TRAINER_ALGORITHMS_H

#include "trainer/trainer.h"

/* Which algorithms the devices compute products with, if DDP_CUDA_TUNE asks for a choice. The bits of a run depend on
 * them, so all ranks have the choices of one rank, and snapshots keep them (algorithms.txt):
 *   the source rank reads those of its snapshot; without a snapshot, rank 0 reads those of the file that DDP_CUDA_TUNE names
 *   all ranks take them
 *   that rank rehearses a step: algorithms are measured for products that have none yet
 *   all ranks take the result
 * A rank on another kind of GPU, or with another version of the library, cannot take them, and rehearses by itself. */

/* Collective, after trainer_restore. Does nothing on CPUs, and where no rank's device chooses. */
MUST_CHECK enum err_code trainer_choose_algorithms(struct trainer *t, struct err *e);

#endif
