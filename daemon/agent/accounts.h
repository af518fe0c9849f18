#ifndef DDP_DAEMON_AGENT_ACCOUNTS_H
#define DDP_DAEMON_AGENT_ACCOUNTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "proto/ddp.pb-c.h"

/* `run_as: submitter`: workers run under the account that the job's user has on this node. */

#define ACCOUNTS_FIRST_UID 1000 /* below are root and the system's own accounts */

/* NOT_FOUND: "no account ana on box3"; PERMISSION_DENIED: a system account; UNAVAILABLE: accounts cannot be
 * looked up now. */
MUST_CHECK enum err_code account_check(const char *user, const char *node, struct err *e);

/* Users whose jobs were refused here. The coordinator does not place their jobs here while they are listed.
 */
struct accounts;
struct accounts *accounts_create(const char *node); /* node is borrowed */
void accounts_free(struct accounts *a);
void accounts_refused(struct accounts *a, const char *user, const char *why);
/* The list for a heartbeat, borrowed until the next call. Users who now have an account are left out. */
Ddp__V1__AccountProblem **accounts_messages(struct accounts *a, size_t *count);

#endif
