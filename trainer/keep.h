#ifndef DDP_TRAINER_KEEP_H
#define DDP_TRAINER_KEEP_H

#include "trainer/trainer.h"

/* Snapshots of the run: who writes them, and what all ranks give to them. */

MUST_CHECK enum err_code keep_open(struct trainer *t, struct err *e); /* collective */
void keep_close(struct trainer *t);                                   /* waits for what is under way */
size_t keep_bytes(const struct trainer *t);                           /* of staged copies */
/* Collective where ranks differ. last: waits for the writer, and fails when the snapshot could not be made to
 * count. */
MUST_CHECK enum err_code keep_snapshot(struct trainer *t, bool last, struct err *e);
/* Until the snapshot before is written: one that matters must not be left out. */
void keep_await(struct trainer *t);

#endif
