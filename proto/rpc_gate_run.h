#ifndef DDP_PROTO_RPC_GATE_RUN_H
#define DDP_PROTO_RPC_GATE_RUN_H

#include "proto/rpc_relay.h"

/* The gate's thread, for rpc_gate.c, which starts it, and rpc_relay.c, which it drives. Inside proto/
 * only. */

void *gate_run(void *gate); /* the thread's function */
/* What handing the connection to gRPC costs, in plain-text handovers. */
double relay_handover_cost(const struct rpc_relay *relay);
/* Logs that the gate drops a connection; at most one line in ten seconds. */
void gate_log_drop(struct rpc_gate *gate, const struct rpc_relay *relay, const char *why);
/* Sets the epoll events that the socket waits for. False: epoll refused. */
bool gate_socket_set_events(struct rpc_gate *gate, struct rpc_gate_socket *sock, uint32_t events);

#endif
