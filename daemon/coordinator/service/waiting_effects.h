#ifndef DDP_DAEMON_COORDINATOR_SERVICE_WAITING_EFFECTS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_WAITING_EFFECTS_H

#include "daemon/coordinator/core/core.h"

/* Effects that wait while commits fail, which may take days. Loop thread. */

struct service;

/* Removes the effects that later ones replace, and those whose call or session is gone. The others keep their order. What is
 * left is bounded by the open calls and sessions, the jobs and the nodes. */
void waiting_effects_thin(const struct service *s, struct core_out *out);

#endif
