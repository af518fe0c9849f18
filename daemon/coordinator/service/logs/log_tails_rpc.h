#ifndef DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_TAILS_RPC_H
#define DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_TAILS_RPC_H

#include "proto/ddp.pb-c.h"

/* Takes the copies of logs from agents. Loop thread. */

struct service;
struct agent_session;

void log_tails_receive(struct agent_session *session, const Ddp__V1__LogTail *m);
void log_tails_heartbeat(struct agent_session *session, const Ddp__V1__Heartbeat *m);
/* How many bytes an agent may send in a second: its share of LOG_TAILS_RATE, which is for all agents. */
int64_t log_tails_rate(const struct service *s);

#endif
