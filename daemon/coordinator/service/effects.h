#ifndef DDP_DAEMON_COORDINATOR_SERVICE_EFFECTS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_EFFECTS_H

#include <stdint.h>

#include "daemon/coordinator/core/core.h"

/* Carries out the core's effects after their commit. Loop thread. */

struct service;
struct agent_session;

void effects_run(struct service *s, const struct core_out *out);

/* For sessions that wait for a durable epoch; the core does not know them: a welcome with the former epoch,
 * and the acknowledgement of a heartbeat, which renews leases. */
void effects_welcome_waiting(struct service *s, struct agent_session *session);
void effects_ack(struct agent_session *session, int64_t sequence, int64_t heartbeat_ms);

#endif
