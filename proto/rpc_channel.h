#ifndef DDP_PROTO_RPC_CHANNEL_H
#define DDP_PROTO_RPC_CHANNEL_H

#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "base/err.h"

/* Blocking calls to a server. Any number of threads may share a channel. */

struct rpc_channel_options; /* rpc_client.h */
struct rpc_channel;

enum rpc_flags {
    RPC_IDEMPOTENT = 1,     /* UNAVAILABLE is tried again, with backoff, until the deadline */
    RPC_WAIT_FOR_READY = 2, /* wait for the server to come up instead of failing at once */
};

/* target: "unix:/path", "host:port", "[v6]:port". Does not connect: the first call does. options may be NULL.
 */
MUST_CHECK enum err_code rpc_channel_open(struct rpc_channel **out, const char *target,
                                          const struct rpc_channel_options *options, struct err *e);
void rpc_channel_close(struct rpc_channel *channel); /* no call or stream may be left; NULL is fine */
/* Any thread: every call and stream on the channel, present and future, ends with CANCELLED. */
void rpc_channel_cancel(struct rpc_channel *channel);

/* timeout_ms covers all tries; 0: no deadline. *reply is written on ERR_OK only. */
MUST_CHECK enum err_code rpc_channel_call(struct rpc_channel *channel,
                                          const ProtobufCServiceDescriptor *service, const char *method,
                                          const void *request, void **reply, int64_t timeout_ms,
                                          unsigned flags, struct err *e);

#endif
