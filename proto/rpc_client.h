#ifndef DDP_PROTO_RPC_CLIENT_H
#define DDP_PROTO_RPC_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "base/err.h"
#include "proto/rpc_codec.h"
#include "proto/rpc_tls.h"

/* gRPC clients. Two ways: a channel with blocking calls (ddpctl; threads of the trainer), and a session on a
 * libuv loop (the agent). Neither needs a thread of the caller's.
 *
 * A method is named by its service descriptor and its name in the .proto: rpc_channel_call(ch,
 * &ddp__v1__cluster__descriptor, "GetJob", &request, (void **)&status, 5000, RPC_IDEMPOTENT, &e). Requests
 * are only read; replies are the caller's, released with rpc_free (CLEANUP(rpc_release)). */

struct rpc_channel_options {
    const char
        *token; /* printable ASCII (bytes travel in hex), sent as "authorization: Bearer ..."; NULL: none */
    const struct rpc_tls_files *tls; /* NULL: plain text, as a unix socket always is */
    const char *tls_name;         /* the name the server's certificate must have; NULL: the target's host */
    size_t max_receive;           /* bytes a message; 0: 16 MiB */
    int64_t keepalive_ms;         /* 0: 10 s */
    int64_t keepalive_timeout_ms; /* 0: 10 s */
};

/* ---- blocking; a channel may be shared by threads, a stream belongs to one ---- */

struct rpc_channel;
struct rpc_stream;

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

/* request: of a server stream; NULL opens a bidirectional one. Returns without waiting for the server: what
 * it says comes with the first rpc_stream_next. timeout_ms: of the whole stream, 0: none. */
MUST_CHECK enum err_code rpc_stream_open(struct rpc_stream **out, struct rpc_channel *channel,
                                         const ProtobufCServiceDescriptor *service, const char *method,
                                         const void *request, int64_t timeout_ms, unsigned flags,
                                         struct err *e);
/* Waits at most wait_ms (-1: for ever) for the next message. ERR_OK: *message is it, or NULL at the stream's
 * good end; ERR_DEADLINE_EXCEEDED while !rpc_stream_ended: nothing came, ask again; else the status the
 * stream ended with. */
MUST_CHECK enum err_code rpc_stream_next(struct rpc_stream *stream, int64_t wait_ms, void **message,
                                         struct err *e);
bool rpc_stream_ended(const struct rpc_stream *stream);
/* Bidirectional: waits until the connection has taken the message. After the stream has ended: its status. */
MUST_CHECK enum err_code rpc_stream_send(struct rpc_stream *stream, const void *message, struct err *e);
MUST_CHECK enum err_code rpc_stream_close_send(struct rpc_stream *stream, struct err *e); /* half close */
void rpc_stream_cancel(struct rpc_stream *stream); /* any thread, until rpc_stream_close */
void rpc_stream_close(struct rpc_stream *stream);  /* cancels what still goes on; NULL is fine */

/* ---- on a libuv loop: bidirectional sessions; everything on the loop's thread ---- */

struct uv_loop_s;
struct rpc_client;
struct rpc_session;

MUST_CHECK enum err_code rpc_client_open(struct rpc_client **out, struct uv_loop_s *loop, const char *target,
                                         const struct rpc_channel_options *options, struct err *e);
/* The same, with another client's thread: a program with many connections wants one. `beside` is closed after
 * it. */
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
    /* Once, last; the session is freed when it returns. ERR_OK: the server finished the stream. Start another
     * here or after a pause of your own; the channel reconnects by itself. */
    void (*on_end)(struct rpc_session *session, const struct err *status, void *user);
};
/* events is borrowed for the session's life. send_queue in bytes, 0: 256 KiB. Never calls back before it
 * returns. */
struct rpc_session *rpc_session_start(struct rpc_client *client, const ProtobufCServiceDescriptor *service,
                                      const char *method, size_t send_queue,
                                      const struct rpc_session_events *events, void *user);
/* As rpc_call_send: RESOURCE_EXHAUSTED when full, then on_sendable; CANCELLED once it is over. */
MUST_CHECK enum err_code rpc_session_send(struct rpc_session *session, const void *message, struct err *e);
size_t rpc_session_queued(const struct rpc_session *session); /* bytes the connection has not taken yet */
void rpc_session_close_send(struct rpc_session *session);     /* half close, after what is queued */
void rpc_session_cancel(struct rpc_session *session);         /* on_end follows, with CANCELLED */

#endif
