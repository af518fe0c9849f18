#ifndef DDP_CLIENT_RUN_HOSTS_LOCAL_TOKEN_H
#define DDP_CLIENT_RUN_HOSTS_LOCAL_TOKEN_H

#include "base/err.h"

/* The token of runs that meet at a loopback address and whose user has no other token. All ddpctl of one user
 * on one machine find the same token, in a file that only this user can read; the first one makes it. */

/* The token, as text; the caller frees it. PERMISSION_DENIED: the file belongs to another user, who knows it. */
MUST_CHECK enum err_code local_token_get(char **token, struct err *e);
char *local_token_file(void);

#endif
