#ifndef DDP_COORDINATOR_INIT_H
#define DDP_COORDINATOR_INIT_H

#include <stdbool.h>

#include "base/err.h"
#include "daemon/coordinator/config.h"

/* `ddp-coordinator init`: makes what is missing of state directory, token and config file, and prints the
 * line to paste on each node. Running it again changes nothing. elsewhere: not where a plain
 * `ddp-coordinator` looks, so the commands that it prints name the state directory and the file. */
MUST_CHECK enum err_code init_run(const struct config *config, const char *config_path, bool elsewhere,
                                  struct err *e);

/* The cluster's token, 64 hex digits; made (0600) when missing and `make` says so, else NOT_FOUND. Refused
 * when others may read it. The caller frees. */
MUST_CHECK enum err_code token_read(const char *state, bool make, char **out, struct err *e);

#endif
