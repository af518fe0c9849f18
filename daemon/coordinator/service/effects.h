#ifndef DDP_DAEMON_COORDINATOR_SERVICE_EFFECTS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_EFFECTS_H

#include <stdint.h>

#include "daemon/coordinator/core/core.h"

/* Carries out what the core decided, after it became durable. Loop thread. */

struct service;
struct agent_session;

void effects_run(struct service *s, const struct core_out *out);

/* Without the core, while there is no durable epoch: */
void effects_welcome_waiting(struct service *s, struct agent_session *session);
void effects_ack(struct agent_session *session, int64_t sequence);

#endif
