#ifndef DDP_DAEMON_SUPERVISOR_OUTCOME_H
#define DDP_DAEMON_SUPERVISOR_OUTCOME_H

#include <stdbool.h>

#include "daemon/supervisor/protocol/spawn_order.h"

/* Reads a worker's log directory once, after the worker's end. The directory belongs to the job's user. */

#define TAIL_LINES 20
#define TAIL_BYTES (8 << 10)

/* The last lines of stderr.log, or of the file that has stderr; NULL: none. The caller frees. */
char *outcome_tail(const char *log_dir, const char *name);
char *outcome_message(const char *log_dir); /* the first line of error.json's message; NULL: none */
/* Whether the last lines of rank 0's stderr say that MASTER_PORT was in use. Another program can take the port after
 * the supervisor has tried it and before rank 0 binds it. */
bool outcome_port_busy(const struct spawn_order *order, const char *tail);
/* Whether the last lines say that an address was in use, without naming it. It may be MASTER_PORT, on which ddp-store
 * listens. */
bool outcome_address_busy(const struct spawn_order *order, const char *tail);

#endif
