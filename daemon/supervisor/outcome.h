#ifndef DDP_DAEMON_SUPERVISOR_OUTCOME_H
#define DDP_DAEMON_SUPERVISOR_OUTCOME_H

#include <stdbool.h>

#include "daemon/supervisor/protocol/spawn_order.h"

/* What a worker left in its log directory, read once after its end. The directory belongs to the job's user.
 */

#define TAIL_LINES 20
#define TAIL_BYTES (8 << 10)

/* The last lines of stderr.log, or of the file that has stderr; NULL: none. The caller frees. */
char *outcome_tail(const char *log_dir, const char *name);
char *outcome_message(const char *log_dir); /* the first line of error.json's message; NULL: none */
/* Another program took the MASTER_PORT between the supervisor's trial and rank 0's bind: the last lines of
 * rank 0's stderr say so. */
bool outcome_port_busy(const struct spawn_order *order, const char *tail);
/* The last lines say that an address was in use, and do not say which one. ddp-store listens on MASTER_PORT, so it may be that. */
bool outcome_address_busy(const struct spawn_order *order, const char *tail);

#endif
