#ifndef DDP_TRAINER_RESUME_DIVIDED_H
#define DDP_TRAINER_RESUME_DIVIDED_H

#include "trainer/snapshot/parts.h"
#include "trainer/trainer.h"

/* Collective, after the parameters were loaded: gives each rank its moments, from a snapshot whose parts hold the moments that other
 * ranks had divided among them (trainer/snapshot/divided.h). This rank may need all of them, or those of a part that is cut in
 * another way.
 *
 * Each rank reads what it needs from the parts in its own snapshot.dir. A part that some rank needs and does not see is read by a
 * rank that sees it, and passed on to all.
 *
 * parts: place->parts of them. DATA_LOSS or NOT_FOUND, on all ranks: a part is damaged, or missing. */
MUST_CHECK enum err_code restore_divided(struct trainer *t, const struct snapshot_place *place,
                                         const struct snapshot_part *parts, struct err *e);

#endif
