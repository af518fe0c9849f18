#ifndef DDP_DAEMON_AGENT_ACCOUNT_H
#define DDP_DAEMON_AGENT_ACCOUNT_H

#include <sys/types.h>

#include "base/err.h"

/* An account of this machine, as its account database knows it. A database on a server (LDAP, SSSD) may not answer for
 * a long time, so the agent's loop thread takes accounts from accounts.h. */

#define ACCOUNT_FIRST_UID 1000 /* lower uids belong to root and to the system */

struct account { /* zeroed: none */
    char *name, *home, *shell;
    uid_t uid;
    gid_t gid;
};

void account_release(struct account *a);
/* Blocks. NOT_FOUND: there is no such account. UNAVAILABLE: the account database could not be read. Any thread. */
MUST_CHECK enum err_code account_look_up(const char *name, struct account *out, struct err *e);
/* The same for the account that this process runs under. */
MUST_CHECK enum err_code account_look_up_own(struct account *out, struct err *e);

/* For `run_as: submitter`: checks whether jobs of this user can run here. found: the user's account; NULL: the user has
 * none. NOT_FOUND: "no account ana on box3". PERMISSION_DENIED: it is a system account. */
MUST_CHECK enum err_code account_check_submitter(const struct account *found, const char *user,
                                                 const char *node, struct err *e);

#endif
