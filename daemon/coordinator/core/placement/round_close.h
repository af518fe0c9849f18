#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_ROUND_CLOSE_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_ROUND_CLOSE_H

#include "daemon/coordinator/core/model.h"

void round_close_all(
    struct core *core); /* closes all rounds that are due; the first part of a placement pass */

#endif
