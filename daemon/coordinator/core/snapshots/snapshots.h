#ifndef DDP_DAEMON_COORDINATOR_CORE_SNAPSHOTS_SNAPSHOTS_H
#define DDP_DAEMON_COORDINATOR_CORE_SNAPSHOTS_SNAPSHOTS_H

#include "daemon/coordinator/core/model.h"

/* Committed snapshots, and which of them a generation starts from. */
void snapshots_commit(struct core *core, const struct core_event *event);
/* The same for a command, whose snapshots are paths. Only for a commit that is not a repeated one (worker_asks.c): it
 * replaces what another rank has committed for the step. ABORTED: the generation of the spawn has ended. */
MUST_CHECK enum err_code snapshots_commit_path(struct core *core, struct spawn *s,
                                               const struct spawn_asks *asks, struct err *e);
/* Fills g->r.source_* from the ranks' offers. Returns the newest offer that would have been the source if nodes of the
 * generation did not lack parts of it; NULL: none. It belongs to its rank. */
const struct core_offer *snapshots_choose(struct core *core, struct generation *g);
const struct snapshot_record *snapshots_newest(const struct job *job); /* of those that count; NULL: none */
/* A new generation of a command starts from the newest committed path. */
void snapshots_give_path(const struct core *core, struct generation *g);
/* True for a command that the user has restarted from scratch, until its next commit. */
bool snapshots_from_scratch(const struct core *core, const struct generation *g);
/* The snapshot that the job's next generation should start from: its own newest one, else that of the job
 * that it continues; NULL: none. */
const struct snapshot_record *snapshots_expected(const struct core *core, const struct job *job);
bool snapshots_has_node(const struct snapshot_record *snapshot, const char *node);
/* The generation's source is older than `expected`. */
bool snapshots_source_older(const struct generation *g, const struct snapshot_record *expected);

#endif
