#ifndef DDP_PROTO_RPC_CLIENT_H
#define DDP_PROTO_RPC_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/rpc_channel.h"
#include "proto/rpc_codec.h"
#include "proto/rpc_session.h"
#include "proto/rpc_stream.h"
#include "proto/rpc_tls.h"

/* gRPC clients, of two kinds: a channel with blocking calls and streams (rpc_channel.h, rpc_stream.h), for
 * ddpctl and for threads of the trainer; and sessions on a libuv loop (rpc_session.h), for the agent. Neither
 * needs a thread of the caller.
 *
 * A method is named by its service descriptor and its name in the .proto: rpc_channel_call(ch,
 * &ddp__v1__cluster__descriptor, "GetJob", &request, (void **)&status, 5000, RPC_IDEMPOTENT, &e). Requests are
 * only read; replies belong to the caller, who releases them with rpc_free (CLEANUP(rpc_release)). */

struct rpc_channel_options {
    const char
        *token; /* printable ASCII (bytes travel in hex), sent as "authorization: Bearer ..."; NULL: none */
    const struct rpc_tls_files *tls; /* NULL: plain text, as a unix socket always is */
    const char *tls_name;            /* required name in the server's certificate; NULL: the target's host */
    size_t max_receive;              /* largest message in bytes; 0: 16 MiB */
    int64_t keepalive_ms;         /* 0: 10 s */
    int64_t keepalive_timeout_ms; /* 0: 10 s */
};

#endif
