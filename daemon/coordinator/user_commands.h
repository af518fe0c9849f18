#ifndef DDP_DAEMON_COORDINATOR_USER_COMMANDS_H
#define DDP_DAEMON_COORDINATOR_USER_COMMANDS_H

#include "base/err.h"

/* `ddp-coordinator user add NAME [--role ROLE] | list | remove NAME | token NAME`. Asks the running
 * coordinator of this state directory over its unix socket. words: the arguments after "user",
 * NULL-terminated; role may be NULL. INVALID_ARGUMENT: wrong usage. UNAVAILABLE: the coordinator does not
 * run. */
MUST_CHECK enum err_code user_command(const char *state, char *const *words, const char *role, struct err *e);

#endif
