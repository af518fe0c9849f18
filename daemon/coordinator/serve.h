#ifndef DDP_DAEMON_COORDINATOR_SERVE_H
#define DDP_DAEMON_COORDINATOR_SERVE_H

#include <stdbool.h>

#include "base/err.h"
#include "daemon/coordinator/config.h"

/* `ddp-coordinator` without a command: becomes the owner of the state directory, reads the tokens, and serves
 * until it is stopped. lifeline: a pipe; when its other end closes, the program ends, as under `ddpctl run`;
 * -1: none. accept_loss: continue with a database that lacks acknowledged commits. DATA_LOSS as
 * service_run. */
MUST_CHECK enum err_code serve_cluster(const struct config *c, int lifeline, bool accept_loss, struct err *e);

#endif
