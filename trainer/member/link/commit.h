#ifndef DDP_TRAINER_MEMBER_LINK_COMMIT_H
#define DDP_TRAINER_MEMBER_LINK_COMMIT_H

#include "trainer/member/link/link.h"

/* Commits snapshots at the coordinator. For the thread that writes them. */

struct link_snapshot {
    int64_t step, bytes;
    int parts; /* 0: one rank commits the whole snapshot; else all ranks do, each when its files are there */
    const char *digest; /* sha256 over the files, in hex; NULL: this rank wrote its part alone */
    const char *path;   /* absolute; NULL as above */
    int64_t
        patience_ms; /* how much longer than usual other ranks may take, because they may wait for space */
};
/* Blocks until the coordinator has committed the snapshot, however long the coordinator is away. With
 * parts, also until all ranks have called it. ABORTED: the coordinator refuses the snapshot for good, because another
 * generation is current or another rank could not write its part. After other errors it may be committed: CANCELLED if
 * this worker or its generation ends. */
MUST_CHECK enum err_code link_commit_snapshot(struct link *r, const struct link_snapshot *s, struct err *e);
/* How long a commit waits for the parts of other ranks, 10 minutes at first. Then it fails, with ABORTED if the coordinator
 * agrees that the snapshot has failed. To be called before any commit. */
void link_set_parts_wait(struct link *r, int64_t ms);
/* Tells the coordinator that the snapshot of this step could not be written. Blocks in the same way. Watch says it again
 * to a coordinator that restarted. */
void link_snapshot_failure(struct link *r, int64_t step, const struct err *why);
/* Tells the coordinator that the snapshot of this step waits for space, and for how much longer. Makes one try, because the caller
 * calls again while it waits. */
void link_snapshot_waits(struct link *r, int64_t step, const struct err *why, int64_t left_ms);

#endif
