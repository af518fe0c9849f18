#ifndef DDP_TRAINER_SNAPSHOT_RUN_H
#define DDP_TRAINER_SNAPSHOT_RUN_H

#include "base/buf.h"
#include "trainer/snapshot/snapshot.h"

/* run.json names the run that wrote a snapshot: its cluster, job and generation. The files of tensors name none of
 * them, so that equal runs write equal files. run.json is one of the files under the snapshot's digest. So snapshots of
 * different runs have different digests, and the digests of equal snapshots on different nodes are equal. */

#define SNAPSHOT_RUN_FILE "run.json"

void snapshot_run_print(struct buf *out, const struct snapshot_place *place);
/* From a snapshot's directory; sets cluster, job and generation of *place. NOT_FOUND: there is no run.json.
 * DATA_LOSS: it is damaged. Other codes: it cannot be read, and may be there. */
MUST_CHECK enum err_code snapshot_run_read(const char *path, struct snapshot_place *place, struct err *e);

#endif
