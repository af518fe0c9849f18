#ifndef DDP_CLIENT_TOKEN_FILES_H
#define DDP_CLIENT_TOKEN_FILES_H

#include "base/buf.h"

/* The files in which ddpctl and `ddpctl run` (ddprun) look for a token that no flag, variable or configuration file gives, in this
 * order: ~/.config/ddp/token, for root also /etc/ddp/token, and for a cluster's coordinator on this machine <state>/token. Runs leave
 * the last one out: the token of a cluster does not belong on the hosts of a run. */
enum token_use { TOKEN_OF_CLUSTER, TOKEN_OF_RUN };

char *token_file_find(enum token_use use); /* the first that exists, or NULL; the caller frees */
/* Their paths in this order, for a message: "/root/.config/ddp/token, /etc/ddp/token". */
void token_files_list(enum token_use use, struct buf *out);

#endif
