#ifndef DDP_PROTO_RPC_CALL_H
#define DDP_PROTO_RPC_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A call on the server's side, for its handler. All functions belong to the thread of the server's loop. */

struct rpc_call;
struct rpc_method;
struct rpc_peer;

/* Queues one message of a stream. RESOURCE_EXHAUSTED: the queue is full, nothing was queued, on_sendable
 * follows (one message always fits an empty queue); CANCELLED: the call is over; INTERNAL: not UTF-8. The
 * message is only read. */
MUST_CHECK enum err_code rpc_call_send(struct rpc_call *call, const void *message, struct err *e);
size_t rpc_call_queued(const struct rpc_call *call); /* bytes that the connection has not taken yet */
/* Ends a call after the queued messages have been sent; does nothing if the call is over. on_end follows later.
 */
void rpc_call_finish(struct rpc_call *call);                     /* OK */
void rpc_call_reply(struct rpc_call *call, const void *message); /* unary: the message, then OK */
void rpc_call_fail(struct rpc_call *call, const struct err *status);
void rpc_call_fail_with(struct rpc_call *call, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

bool rpc_call_over(const struct rpc_call *call);            /* ended, or its end is on the way */
int64_t rpc_call_remaining_ms(
    const struct rpc_call *call); /* time until the client's deadline; INT64_MAX: there is none */
const struct rpc_peer *rpc_call_peer(const struct rpc_call *call);
const struct rpc_method *rpc_call_method(const struct rpc_call *call);
void *rpc_call_service_user(const struct rpc_call *call);
void rpc_call_set_user(struct rpc_call *call,
                       void *user); /* owned by the handler, which frees it in on_end */
void *rpc_call_user(const struct rpc_call *call);
/* The identity that the auth hook found; release (may be NULL) runs when the call is freed. */
void rpc_call_set_identity(struct rpc_call *call, void *identity, void (*release)(void *identity));
void *rpc_call_identity(const struct rpc_call *call);
struct rpc_call *rpc_call_ref(
    struct rpc_call *call); /* returns call; a server finishes draining when all references are released */
void rpc_call_unref(struct rpc_call *call);

#endif
