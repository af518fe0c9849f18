#ifndef DDP_PROTO_RPC_GATE_H
#define DDP_PROTO_RPC_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/rpc_limits.h"

/* The gate accepts the connections to a server's TCP ports in place of gRPC. gRPC spends memory and time
 * on every connection, and never drops one connection to accept another. So a thread of the gate accepts
 * the connections, holds back those that have sent nothing, and drops unauthenticated ones (without an
 * admitted call) when there are too many (rpc_connections.h). It relays the bytes of the other connections
 * to and from gRPC, which listens on a private unix socket. It counts the frames of plain-text connections
 * (rpc_frames.h).
 *
 * Each connection reaches gRPC from its own abstract socket name, which gRPC reports as the peer. The name
 * contains the connection's number and its TCP address. Numbers are never reused, so a call that is still
 * queued when its connection is gone cannot be taken for a call of another connection.
 *
 * To stop: call rpc_gate_shut (no more connections), let the server drain through the gate, then call
 * rpc_gate_free. All functions belong to one thread, which need not be the loop's. The gate's own thread
 * makes no callbacks. */

struct rpc_gate;

/* dir: the directory of the private sockets, 0700; NULL: a temporary one. Zeros in limits mean the defaults.
 */
MUST_CHECK enum err_code rpc_gate_create(struct rpc_gate **out, const struct rpc_limits *limits,
                                         const char *dir, struct err *e);
/* Listens on host:port; *port is the actual port. gRPC must then serve at *path, valid as long as the gate.
 */
MUST_CHECK enum err_code rpc_gate_listen(struct rpc_gate *gate, const char *address, bool tls, int *port,
                                         const char **path, struct err *e);
void rpc_gate_start(struct rpc_gate *gate);
void rpc_gate_shut(struct rpc_gate *gate);
void rpc_gate_free(struct rpc_gate *gate); /* first sends gRPC's last bytes, for a short time */

/* The number in a peer's name, and the TCP address behind it; false: not a connection of this gate. */
bool rpc_gate_peer(const struct rpc_gate *gate, const char *name, uint64_t *number, const char **address);
/* Reports whether a call of that connection was admitted. The connection may be gone. */
void rpc_gate_report_call(struct rpc_gate *gate, uint64_t number, bool admitted);

/* Returns the counters, and resets deaf_ms and shut_ms. */
void rpc_gate_take_traffic(struct rpc_gate *gate, struct rpc_traffic *out);

#endif
