#ifndef DDP_DAEMON_AGENT_ACCOUNTS_H
#define DDP_DAEMON_AGENT_ACCOUNTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "proto/ddp.pb-c.h"

/* Accounts for `run_as: submitter`: each worker runs under the account that the job's user has on this node.
 */

#define ACCOUNTS_FIRST_UID 1000 /* lower uids belong to root and to the system */

/* Checks whether jobs of this user can run here. NOT_FOUND: "no account ana on box3". PERMISSION_DENIED: it
 * is a system account. UNAVAILABLE: the account database cannot be read now. */
MUST_CHECK enum err_code account_check(const char *user, const char *node, struct err *e);

/* The users whose jobs this node has refused. While a user is listed, the coordinator places none of the
 * user's jobs here. Loop thread. */
struct accounts;
struct accounts *accounts_create(const char *node); /* node is borrowed */
void accounts_free(struct accounts *a);
void accounts_refused(struct accounts *a, const char *user, const char *why);
/* The list for a heartbeat, borrowed until the next call. Users who have an account by now are removed first.
 */
Ddp__V1__AccountProblem **accounts_messages(struct accounts *a, size_t *count);

#endif
