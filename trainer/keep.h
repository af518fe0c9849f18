#ifndef DDP_TRAINER_KEEP_H
#define DDP_TRAINER_KEEP_H

#include "trainer/trainer.h"

/* The run's snapshots: chooses the ranks that write what all share, and stages what goes into them. */

MUST_CHECK enum err_code keep_open(struct trainer *t, struct err *e); /* collective */
void keep_close(struct trainer *t);         /* waits for a snapshot that is being written */
size_t keep_bytes(const struct trainer *t); /* returns the memory of staged copies */
/* Collective if ranks differ. last: waits for the writer, and returns its error if the snapshot could not be
 * committed. */
MUST_CHECK enum err_code keep_snapshot(struct trainer *t, bool last, struct err *e);
/* If all ranks have the same state, the thread that writes a snapshot also copies the state from the device, while
 * the next forward and backward pass run. These passes change neither parameters nor moments. keep_await_copy waits
 * until the copy is complete. Called before an update. */
void keep_await_copy(struct trainer *t);
/* Waits until the previous snapshot is written, so that the next one, which must not be left out, is taken.
 */
void keep_await(struct trainer *t);

#endif
