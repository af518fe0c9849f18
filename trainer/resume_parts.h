#ifndef DDP_TRAINER_RESUME_PARTS_H
#define DDP_TRAINER_RESUME_PARTS_H

#include "trainer/snapshot/parts.h"
#include "trainer/trainer.h"

/* Collective, after the shared model was loaded: gives each rank what a snapshot's part says that it had of its own.
 *
 * Rank r takes part r, also in the middle of a round: with the same number of ranks the run continues bit for bit. Ranks
 * read their parts in snapshot.dir; a rank whose node lacks its part gets it over the group from a node that has it. In
 * a larger world a new rank begins with the shared model and the moments of part r mod old. In a smaller one the parts of
 * the ranks that are gone are dropped; the same holds for parts that no node has, because the node that wrote them is not
 * in the group: their rank goes on like a new one. A line in the log says so.
 *
 * If ranks must not differ now (all-reduce), all take the moments of one part.
 *
 * parts: place->parts of them; state: room for one state. DATA_LOSS or NOT_FOUND, on all ranks: a part is damaged, or
 * missing where it should be. */
MUST_CHECK enum err_code restore_parts(struct trainer *t, const struct snapshot_place *place,
                                       const struct snapshot_part *parts, float *state, struct err *e);

/* Whether another copy of a part may do: the file is damaged or lost, not the model another one. */
bool parts_copy_is_bad(const struct err *found);

#endif
