#ifndef DDP_DAEMON_COORDINATOR_CORE_SNAPSHOTS_LOST_SNAPSHOTS_H
#define DDP_DAEMON_COORDINATOR_CORE_SNAPSHOTS_LOST_SNAPSHOTS_H

#include "base/buf.h"
#include "daemon/coordinator/core/model.h"

/* A job whose committed snapshots cannot be found waits for them; lost_snapshots.c describes how. */
struct placement_choice;

/* All ranks have joined, and the source is chosen; refused: what snapshots_choose returned. Returns true if the
 * generation must not start; it has ended then. */
bool lost_snapshots_check(struct core *core, struct generation *g, const struct core_offer *refused);
bool lost_snapshots_waits(const struct job *job);
void lost_snapshots_looked(struct core *core, struct node *node, const struct core_event *event);
void lost_snapshots_tick(struct core *core, struct job *job);
int64_t lost_snapshots_deadline(const struct job *job); /* INT64_MAX: none */
void lost_snapshots_node_back(struct core *core);       /* a node connected: asks the nodes at once */
void lost_snapshots_retry(struct job *job); /* called when the user restarts the job; ends the wait */
/* Called when the user has resized the job, with the new numbers of nodes. Ends the wait for nodes that lack parts. If there
 * are enough others for the new size, the job is placed on these only. */
void lost_snapshots_resized(struct job *job);
/* False: some node has the snapshots, but none of the chosen ones does. */
bool lost_snapshots_has_place(const struct job *job, const struct placement_choice *chosen, size_t count);
bool lost_snapshots_on_node(const struct job *job, const struct node *node); /* the node has the snapshots */
/* Nodes have the snapshots, but the job cannot be placed on any of them now: says so. */
void lost_snapshots_explain_place(struct core *core, struct job *job, struct buf *text);

#endif
