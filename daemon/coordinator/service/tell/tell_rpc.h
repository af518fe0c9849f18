#ifndef DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELL_RPC_H
#define DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELL_RPC_H

#include <stdbool.h>

/* ListHooks and TestHook. */
struct rpc_call;
struct service;
struct stats_hooks;
void tell_list(struct rpc_call *rpc, const void *message, void *user);
void tell_test(struct rpc_call *rpc, const void *message, void *user);
void tell_test_end(struct rpc_call *rpc, bool cancelled);
void tell_count(struct service *s, struct stats_hooks *out); /* for /metrics */

#endif
