#ifndef DDP_PROTO_RPC_SERVER_H
#define DDP_PROTO_RPC_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <protobuf-c/protobuf-c.h>

#include "base/err.h"
#include "proto/rpc_call.h"
#include "proto/rpc_codec.h"
#include "proto/rpc_limits.h"
#include "proto/rpc_tls.h"

/* A gRPC server on a caller's libuv loop. One parked thread waits in gRPC and hands completions to the loop;
 * every callback below runs on the loop's thread, takes no locks, must not block, and may answer later. Every
 * function here belongs to that thread too. */

struct uv_loop_s;
struct rpc_server;
struct rpc_call;

enum rpc_kind {
    RPC_UNARY,
    RPC_SERVER_STREAM,
    RPC_BIDI,
};

/* The origin of a call. A unix peer has proven its uid, a TLS peer its certificate, and a TCP peer nothing. */
enum rpc_peer_kind {
    RPC_PEER_UNIX,
    RPC_PEER_TCP,
    RPC_PEER_TLS,
};
struct rpc_peer {
    enum rpc_peer_kind kind;
    uid_t uid;        /* RPC_PEER_UNIX; else (uid_t)-1 */
    pid_t pid;        /* RPC_PEER_UNIX; else 0 */
    char address[80]; /* "10.0.0.7:4711", "[::1]:4711", "unix" */
    char name[80];    /* RPC_PEER_TLS: common name of the certificate; else empty */
};

/* One row for each method of the service, unary or stream. A call's callbacks come in this order: on_start
 * once (not for calls that are refused before it), then on_message and on_sendable as they happen, then
 * on_end once. The call pointer is valid until on_end returns, longer with rpc_call_ref. */
struct rpc_method {
    const char *name; /* as in the .proto; NULL ends the table */
    enum rpc_kind kind;
    bool
        waits; /* a unary call that may stay open for a long time: drain ends it at once, as it ends streams */
    /* request: the unpacked message, valid as long as the call; NULL for RPC_BIDI */
    void (*on_start)(struct rpc_call *call, const void *request, void *service_user);
    /* RPC_BIDI: each message, valid during the callback; NULL: the client has closed its side */
    void (*on_message)(struct rpc_call *call, const void *message);
    /* after a refused rpc_call_send: the queue has room again; may be NULL */
    void (*on_sendable)(struct rpc_call *call);
    /* cancelled: the client went away, cancelled, or its deadline passed before the status was out; may be
     * NULL */
    void (*on_end)(struct rpc_call *call, bool cancelled);
};
struct rpc_service {
    const ProtobufCServiceDescriptor *descriptor;
    const struct rpc_method *methods; /* methods of the descriptor without a row answer UNIMPLEMENTED */
    void *user;
};

/* Called for every call but health, before its body is read. token: what followed "Bearer " in the
 * authorization header, not NUL-terminated; NULL without one. Returns ERR_OK, or sets the status the client
 * gets. It may keep its result with rpc_call_set_identity. */
struct rpc_auth {
    const char *service; /* "ddp.v1.Cluster" */
    const char *method;  /* "SubmitJob" */
    const char *token;
    size_t token_len;
    const struct rpc_peer *peer;
};
typedef enum err_code (*rpc_auth_fn)(struct rpc_call *call, const struct rpc_auth *auth, void *user,
                                     struct err *e);

struct rpc_server_options {
    struct uv_loop_s *loop;
    rpc_auth_fn auth; /* NULL: every caller is allowed (tests) */
    void *auth_user;
    size_t
        max_receive; /* largest message in bytes; 0: 1 MiB. A larger one ends its call with RESOURCE_EXHAUSTED */
    size_t send_queue;            /* queued bytes per stream; 0: 256 KiB */
    int64_t keepalive_ms;         /* a silent connection gets a ping after this time; 0: 10 s */
    int64_t keepalive_timeout_ms; /* and is dropped if it does not answer for this time; 0: 10 s */
    struct rpc_limits limits;     /* of the TCP ports */
    const char *private_dir; /* 0700, for private sockets; less than 90 bytes; NULL: a temporary directory */
};

MUST_CHECK enum err_code rpc_server_create(struct rpc_server **out, const struct rpc_server_options *options,
                                           struct err *e);
/* Before rpc_server_start. The structs are borrowed until the server is gone. */
void rpc_server_add_service(struct rpc_server *server, const struct rpc_service *service);
/* Makes the directory 0700 when it is missing, refuses one that others may enter, holds a lock beside the
 * socket (FAILED_PRECONDITION: another process serves there), removes a stale socket. Only the server's own
 * uid and root may connect. path: at most 107 bytes. */
MUST_CHECK enum err_code rpc_server_listen_unix(struct rpc_server *server, const char *path, struct err *e);
/* address: "host:port" or "[v6]:port"; port 0 picks one; *port (may be NULL) gets it. tls NULL: plain text;
 * else copied. Before rpc_server_start. */
MUST_CHECK enum err_code rpc_server_listen_tcp(struct rpc_server *server, const char *address,
                                               const struct rpc_tls_files *tls, int *port, struct err *e);
void rpc_server_start(struct rpc_server *server);
/* Stops listening and tells clients to go; streams and waiting calls end with UNAVAILABLE "draining", unary
 * calls get until grace_ms, then everything is cancelled. on_drained is called when no call is left. It may
 * call rpc_server_free, which must be called then or later. A second drain only shortens the grace. */
void rpc_server_drain(struct rpc_server *server, int64_t grace_ms, void (*on_drained)(void *user),
                      void *user);
bool rpc_server_draining(const struct rpc_server *server);
/* Call after on_drained, or if the server was never started; does nothing for NULL. Run the loop once more, so that
 * the loop handles close. */
void rpc_server_free(struct rpc_server *server);
size_t rpc_server_calls(const struct rpc_server *server); /* in progress now */
/* For each call in progress; fn may end the call that it is given. */
void rpc_server_each_call(struct rpc_server *server, void (*fn)(struct rpc_call *call, void *user),
                          void *user);
/* Returns the counters of the TCP ports, and resets the two times. */
void rpc_server_traffic(struct rpc_server *server, struct rpc_traffic *out);

#endif
