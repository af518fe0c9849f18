#ifndef DDP_PROTO_RPC_CHANNEL_H
#define DDP_PROTO_RPC_CHANNEL_H

#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "base/err.h"

/* Blocking calls to a server. Any number of threads may share a channel. */

struct rpc_channel_options; /* rpc_client.h */
struct rpc_channel;

enum rpc_flags {
    RPC_IDEMPOTENT = 1,     /* repeats the call on UNAVAILABLE, with backoff, until the deadline */
    RPC_WAIT_FOR_READY = 2, /* waits for the server to start instead of failing at once */
};

/* target: "unix:/path", "host:port", "[v6]:port". Does not connect: the first call does. options may be NULL.
 */
MUST_CHECK enum err_code rpc_channel_open(struct rpc_channel **out, const char *target,
                                          const struct rpc_channel_options *options, struct err *e);
/* A second channel on the connection of another one, which is on a unix socket, with a token of its own. The other one must be
 * closed later. */
MUST_CHECK enum err_code rpc_channel_share(struct rpc_channel **out, const struct rpc_channel *with,
                                           const char *token, struct err *e);
void rpc_channel_close(
    struct rpc_channel *channel); /* no call or stream may be open; does nothing for NULL */
/* Ends every present and future call and stream of the channel with CANCELLED. Any thread. */
void rpc_channel_cancel(struct rpc_channel *channel);

/* timeout_ms covers all tries; 0: no deadline. *reply is written on ERR_OK only. */
MUST_CHECK enum err_code rpc_channel_call(struct rpc_channel *channel,
                                          const ProtobufCServiceDescriptor *service, const char *method,
                                          const void *request, void **reply, int64_t timeout_ms,
                                          unsigned flags, struct err *e);

/* Sleeps while the connection of the channel is made again, if it is lost. gRPC looks at its sockets only while a thread waits in
 * one of its calls, and otherwise every 5 s. So who waits to try again must not use a plain sleep. pause_ms: at most 60000. */
void rpc_channel_sleep(struct rpc_channel *channel, int64_t pause_ms);

#endif
