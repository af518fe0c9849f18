#ifndef DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOGS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOGS_H

#include "proto/ddp.pb-c.h"
#include "proto/rpc_server.h"

/* ReadLogs: passes parts of log files from the nodes to users. Loop thread. */

struct service;
struct agent_session;

/* ReadLogs: on_start, on_sendable, on_end. */
void logs_read(struct rpc_call *rpc, const void *request, void *user);
void logs_sendable(struct rpc_call *rpc);
void logs_end(struct rpc_call *rpc, bool cancelled);

void logs_chunk(struct agent_session *session, const Ddp__V1__LogChunk *chunk); /* from an agent */
void logs_job_changed(struct service *s, int64_t job);
/* The node's session began or ended, or the node is lost. */
void logs_node_changed(struct service *s, const char *node);
void logs_push(struct service *s); /* continues the streams that the functions above marked */

#endif
