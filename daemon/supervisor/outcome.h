#ifndef DDP_DAEMON_SUPERVISOR_OUTCOME_H
#define DDP_DAEMON_SUPERVISOR_OUTCOME_H

#include <stdbool.h>

#include "daemon/supervisor/protocol/control.h"

/* What a worker left behind, read once at its end. */

#define TAIL_LINES 20
#define TAIL_BYTES (8 << 10)

char *outcome_tail(const char *log_dir);    /* the last lines of stderr.log; NULL: none. The caller frees */
char *outcome_message(const char *log_dir); /* the first line of error.json's message; NULL: none */
/* The MASTER_PORT was taken between our look and rank 0's bind: its last words say so. */
bool outcome_port_busy(const struct spawn_order *order, const char *tail);

#endif
