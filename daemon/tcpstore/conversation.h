#ifndef DDP_DAEMON_TCPSTORE_CONVERSATION_H
#define DDP_DAEMON_TCPSTORE_CONVERSATION_H

#include "base/buf.h"
#include "daemon/tcpstore/table.h"

/* One client's side of the protocol, without its socket: bytes that came are appended to `in`, and `out` holds the
 * bytes to send. Zeroed it is a new connection. */
struct tcpstore_conversation {
    struct tcpstore_waiter waiter; /* first: the table's callback finds the conversation by it */
    struct tcpstore_parser parser; /* of `in` */
    struct buf in, out;
    bool asked; /* a request has come that is not VALIDATE or PING, with which PyTorch's clients greet */
    bool held;  /* the first request in `in` waits: its large reply was above `room` */
};

/* Replies wait in `out` up to about this many bytes; further requests are read when they have been sent. */
enum { TCPSTORE_OUT_PAUSE = 64 << 10 };

/* Obeys the whole requests in `in`, up to the first one whose reply has more than `room` bytes and is large: more than
 * TCPSTORE_OUT_PAUSE. Such a request stays in `in`, and `held` is set until a call with more room obeys it. An error
 * means that the connection must be closed: INVALID_ARGUMENT for bytes that are not this protocol or above its limits,
 * RESOURCE_EXHAUSTED if the store is full. */
MUST_CHECK enum err_code tcpstore_converse(struct tcpstore_conversation *c, struct tcpstore_table *t,
                                           size_t room, struct err *e);
/* The table's `woken`: tells the client that its keys have come. */
void tcpstore_conversation_woken(void *ctx, struct tcpstore_waiter *waiter);
void tcpstore_conversation_release(struct tcpstore_conversation *c, struct tcpstore_table *t);

#endif
