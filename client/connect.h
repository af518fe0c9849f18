#ifndef DDP_CLIENT_CONNECT_H
#define DDP_CLIENT_CONNECT_H

#include "client/cmd/command.h"
#include "client/link.h"
#include "proto/ddp.pb-c.h"

/* The coordinator that commands talk to, and the credentials for it.
 *
 * Its address is the first of: --coordinator, DDP_COORDINATOR, `coordinator` in the config file, the local
 * socket <state>/coordinator.sock if it exists and may be used, localhost:29600. A TCP connection needs a
 * token, the first of: --token FILE, DDP_TOKEN (the token itself), `token` in the config file,
 * the files of token_files.h. */
MUST_CHECK enum err_code target_find(const struct globals *globals, struct target *out, struct err *e);
MUST_CHECK enum err_code link_open(struct link *link, const struct globals *globals, struct err *e);
/* Opens a link, makes one call and closes the link. *reply: rpc_free. */
MUST_CHECK enum err_code link_call_once(const struct globals *globals, const char *method,
                                        const void *request, void **reply, struct err *e);

#endif
