#ifndef DDP_PROTO_RPC_SESSION_H
#define DDP_PROTO_RPC_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "base/err.h"

/* Bidirectional streams on a libuv loop. All functions belong to the loop's thread. */

struct rpc_channel_options; /* rpc_client.h */
struct uv_loop_s;
struct rpc_client;
struct rpc_session;

MUST_CHECK enum err_code rpc_client_open(struct rpc_client **out, struct uv_loop_s *loop, const char *target,
                                         const struct rpc_channel_options *options, struct err *e);
/* The same with the thread of another client, for programs with many connections. `beside` must be closed after this
 * client. */
MUST_CHECK enum err_code rpc_client_open_beside(struct rpc_client **out, struct rpc_client *beside,
                                                const char *target, const struct rpc_channel_options *options,
                                                struct err *e);
/* Cancels its sessions (their on_end still comes), then on_closed (may be NULL) once its loop handles are
 * closed and the client is freed. */
void rpc_client_close(struct rpc_client *client, void (*on_closed)(void *user), void *user);

struct rpc_session_events {
    void (*on_open)(struct rpc_session *session, void *user); /* server accepted; may be NULL */
    void (*on_message)(struct rpc_session *session, const void *message,
                       void *user);                               /* valid during the callback */
    void (*on_sendable)(struct rpc_session *session, void *user); /* after a refused send; may be NULL */
    /* The last callback, called once; the session is freed when it returns. ERR_OK: the server finished the stream.
     * Another session may be started here or later; the channel reconnects by itself. */
    void (*on_end)(struct rpc_session *session, const struct err *status, void *user);
};
/* events is borrowed for the session's life. send_queue in bytes, 0: 256 KiB. Never calls back before it
 * returns. */
struct rpc_session *rpc_session_start(struct rpc_client *client, const ProtobufCServiceDescriptor *service,
                                      const char *method, size_t send_queue,
                                      const struct rpc_session_events *events, void *user);
/* As rpc_call_send: RESOURCE_EXHAUSTED: the queue is full, on_sendable follows. CANCELLED: the session is over. */
MUST_CHECK enum err_code rpc_session_send(struct rpc_session *session, const void *message, struct err *e);
size_t rpc_session_queued(const struct rpc_session *session); /* bytes the connection has not taken yet */
void rpc_session_close_send(
    struct rpc_session *session); /* closes this direction after the queued messages */
void rpc_session_cancel(struct rpc_session *session);         /* on_end follows, with CANCELLED */

#endif
