#ifndef DDP_DAEMON_AGENT_LOGS_LOG_CLUSTER_H
#define DDP_DAEMON_AGENT_LOGS_LOG_CLUSTER_H

#include "base/err.h"

/* The log directory belongs to one cluster: job 1 of the next cluster must not append to the files of this one's job 1, whose output
 * may be another user's. <log_dir>/cluster.<node> has the id of the cluster whose jobs' logs this node has in <log_dir>/<job>. When
 * the node joins another cluster, its part of each job (log_part.h) moves to <log_dir>/former_<id>/<job>. Logs of other nodes that
 * share the directory stay: their agents move them. Loop thread. */

#define LOG_CLUSTER_FORMER "former_"

/* At the agent's start: this node belongs to the cluster. Does nothing if a cluster is recorded. An agent of an older version did not
 * record it. */
MUST_CHECK enum err_code log_cluster_note(const char *log_dir, const char *node, const char *cluster,
                                          struct err *e);
/* The node joins the cluster. Moves the logs of another cluster, or of an unknown one, aside. If it fails, no job may start. */
MUST_CHECK enum err_code log_cluster_enter(const char *log_dir, const char *node, const char *cluster,
                                           struct err *e);

#endif
