#ifndef DDP_TRAINER_ALGORITHMS_H
#define DDP_TRAINER_ALGORITHMS_H

#include "trainer/trainer.h"

/* With DDP_CUDA_TUNE, algorithms for matrix products are chosen by measurement. The bits of a run depend on them, so
 * all ranks use the choices of one rank, and snapshots keep them (algorithms.txt):
 *   1. The source rank reads the choices of its snapshot. Without a snapshot, rank 0 reads the file that DDP_CUDA_TUNE names.
 *      In a generation that goes on from memory the source rank keeps the choices that it has.
 *   2. All ranks take these choices.
 *   3. That rank does the work of one micro-batch as a rehearsal, which measures algorithms for products without a choice.
 *   4. All ranks take the result.
 * A rank on another kind of GPU, or with another version of the library, cannot take the choices, and does its own
 * rehearsal. */

/* Collective; call it after trainer_restore. Does nothing on CPUs, or if no rank's device chooses algorithms. */
MUST_CHECK enum err_code trainer_choose_algorithms(struct trainer *t, struct err *e);

#endif
