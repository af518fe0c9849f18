#ifndef DDP_DAEMON_AGENT_ACCOUNTS_H
#define DDP_DAEMON_AGENT_ACCOUNTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/agent/account.h"
#include "proto/ddp.pb-c.h"

/* The accounts that jobs run under, and the users whose jobs this node has refused (`run_as: submitter`).
 *
 * Happy path: a start asks for an account and gets UNAVAILABLE. A thread of libuv's pool looks the account up, and
 * on_change lets the agent try the start again. The start then finds the account here, where it stays for 5 s. While a
 * user is listed as refused, the coordinator places none of the user's jobs here; the pool looks for the account again
 * every 5 s.
 *
 * A server of accounts that does not answer delays only the starts, and the end of the agent. At most two threads wait for it: one looks up
 * accounts for starts, the other those of refused users. Loop thread. */

struct uv_loop_s;
struct accounts;

struct accounts_options {
    const char *node;
    void (*on_change)(void *ctx); /* an account was looked up */
    void *ctx;
};

struct accounts *accounts_create(struct uv_loop_s *loop, const struct accounts_options *options);
/* Freed by the loop when the look-ups that are under way have ended. */
void accounts_close(struct accounts *a);

/* *out is borrowed until the next call of this module or of the loop. UNAVAILABLE: the look-up has not ended, or it
 * failed; try again at on_change. RESOURCE_EXHAUSTED: starts have waited for the account for 30 s. NOT_FOUND: there is no such
 * account. */
MUST_CHECK enum err_code accounts_find(struct accounts *a, const char *name, const struct account **out,
                                       struct err *e);

/* Jobs of this user cannot run here. */
void accounts_refused(struct accounts *a, const char *user, const char *why);
/* The refused users, for a heartbeat, borrowed until the next call of this module or of the loop. A user who has got an
 * account is removed when the next look-up finds it. */
Ddp__V1__AccountProblem **accounts_messages(struct accounts *a, size_t *count);

#endif
