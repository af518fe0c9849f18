#ifndef DDP_CLIENT_RUN_HOSTS_RUN_TOKEN_H
#define DDP_CLIENT_RUN_HOSTS_RUN_TOKEN_H

#include "client/cmd/command.h"

/* The token that the hosts of a run share: --token FILE, DDP_TOKEN, or the files of token_files.h. It has 16 characters or more. *token is 64 hex digits: the token itself if it has this form,
 * else its SHA-256. A file that other users can read is refused. The token is removed from this process's
 * environment, so that no child gets it. *token is NULL with --insecure. UNAUTHENTICATED: there is no token.
 */
MUST_CHECK enum err_code run_token_find(const struct globals *globals, char **token, struct err *e);

#endif
