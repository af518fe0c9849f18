#ifndef DDP_DAEMON_COORDINATOR_OWNER_H
#define DDP_DAEMON_COORDINATOR_OWNER_H

#include <stdbool.h>

#include "base/err.h"

/* Under systemd the coordinator runs as the account `ddp`, which owns the state directory, while an
 * administrator runs `init` and the other commands as root. So files that root makes there are given to the
 * directory's owner, and a coordinator that root starts by hand switches to that account. Without root, these
 * functions do nothing. */

#define OWNER_ACCOUNT "ddp"

/* Gives a new state directory of root to the account `ddp`, if that account exists. */
MUST_CHECK enum err_code owner_assign(const char *state, struct err *e);
/* Gives the files that root owns in another account's state directory to that account. */
MUST_CHECK enum err_code owner_hand_over(const char *state, struct err *e);
/* Switches this process permanently to the account that owns the state directory. */
MUST_CHECK enum err_code owner_become(const char *state, struct err *e);
/* True if this process is root and the state directory belongs to another account. */
bool owner_is_other(const char *state);

#endif
