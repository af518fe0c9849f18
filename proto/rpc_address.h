#ifndef DDP_PROTO_RPC_ADDRESS_H
#define DDP_PROTO_RPC_ADDRESS_H

#include <stdbool.h>

#include "base/err.h"

/* Parses addresses as users write them: "host:port", "[v6]:port", "unix:/path". Any thread. */

struct rpc_address {
    char host[256]; /* without brackets; empty for a unix socket */
    int port;
    const char *path; /* path of a unix socket, inside the parsed text; else NULL */
};
MUST_CHECK enum err_code rpc_address_parse(const char *text, struct rpc_address *out, struct err *e);

/* Whether this is a unix socket on which no process listens (yet). False for every other address. */
bool rpc_address_absent(const char *text);

/* Returns the target in gRPC's form, which marks literal addresses. The caller frees it. */
MUST_CHECK enum err_code rpc_address_target(const char *text, char **out, struct err *e);

#endif
