#ifndef DDP_DAEMON_COORDINATOR_INIT_H
#define DDP_DAEMON_COORDINATOR_INIT_H

#include <stdbool.h>

#include "base/err.h"
#include "daemon/coordinator/config.h"

/* `ddp-coordinator init`: creates the state directory, the tokens and the configuration file if they are
 * missing, and prints the commands to paste. Running it again changes nothing. elsewhere: --state or --config
 * was given, so the printed commands repeat it. */
MUST_CHECK enum err_code init_run(const struct config *config, const char *config_path, bool elsewhere,
                                  struct err *e);

#endif
