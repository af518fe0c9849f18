#ifndef DDP_PROTO_RPC_STREAM_H
#define DDP_PROTO_RPC_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "base/err.h"
#include "proto/rpc_channel.h"

/* A blocking stream on a channel. It belongs to one thread; only rpc_stream_cancel may come from others. */

struct rpc_stream;

/* request: for a server stream; NULL opens a bidirectional stream. Does not wait for the server: its first answer comes
 * with rpc_stream_next. timeout_ms: for the whole stream; 0: no limit. */
MUST_CHECK enum err_code rpc_stream_open(struct rpc_stream **out, struct rpc_channel *channel,
                                         const ProtobufCServiceDescriptor *service, const char *method,
                                         const void *request, int64_t timeout_ms, unsigned flags,
                                         struct err *e);
/* Waits at most wait_ms (-1: for ever) for the next message. ERR_OK: *message is the message, or NULL if
 * the stream has ended without an error. ERR_DEADLINE_EXCEEDED while !rpc_stream_ended: no message came, call again.
 * Any other code is the status with which the stream ended. */
MUST_CHECK enum err_code rpc_stream_next(struct rpc_stream *stream, int64_t wait_ms, void **message,
                                         struct err *e);
bool rpc_stream_ended(const struct rpc_stream *stream);
/* Bidirectional: waits until the connection has taken the message. After the stream has ended: its status. */
MUST_CHECK enum err_code rpc_stream_send(struct rpc_stream *stream, const void *message, struct err *e);
MUST_CHECK enum err_code rpc_stream_close_send(struct rpc_stream *stream,
                                               struct err *e); /* closes this direction */
void rpc_stream_cancel(struct rpc_stream *stream); /* any thread, until rpc_stream_close */
void rpc_stream_close(
    struct rpc_stream *stream); /* cancels the stream if it is open; does nothing for NULL */

#endif
