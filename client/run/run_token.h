#ifndef DDP_CLIENT_RUN_RUN_TOKEN_H
#define DDP_CLIENT_RUN_RUN_TOKEN_H

#include "client/cmd/command.h"

/* The token that the hosts of a run share: --token FILE, DDP_TOKEN, ~/.config/ddp/token (a file that others
 * may read is refused), /etc/ddp/token for root. Takes it out of the environment, so that nothing we start
 * has it. NULL with --insecure; UNAUTHENTICATED without any. */
MUST_CHECK enum err_code run_token_find(const struct globals *globals, char **token, struct err *e);

#endif
