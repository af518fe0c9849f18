#ifndef DDP_PROTO_RPC_RESOLVE_H
#define DDP_PROTO_RPC_RESOLVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Resolves names with the system's resolver (/etc/hosts, then DNS, as in /etc/nsswitch.conf). gRPC uses the
 * same resolver. */

/* Checks that the host of "host:port" has an address. Waits for limit_ms at most, because the resolver itself
 * waits ten seconds or more for a silent name server. UNAVAILABLE: the name server does not answer; the
 * message names it. NOT_FOUND: the name is unknown. ERR_OK also for a literal address and a unix socket. Any
 * thread but a loop's. */
MUST_CHECK enum err_code rpc_resolve(const char *address, int64_t limit_ms, struct err *e);

/* If gRPC found no address, replaces the text of the call's failure; keeps other texts. */
void rpc_resolve_explain(char *msg, size_t size);

#endif
