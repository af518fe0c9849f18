#ifndef DDP_DAEMON_TCPSTORE_SERVER_H
#define DDP_DAEMON_TCPSTORE_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Serves PyTorch's TCPStore on a listening socket. One thread, one epoll.
 *
 * Happy path: clients connect, send requests, and go; when the workers of this machine have ended, the owner's pipe
 * closes, and the server ends when the last client has gone, because ranks on other machines may end later.
 *
 * Clients do not authenticate, as with PyTorch's own store. So the cost of a stranger is bounded:
 *   memory          what is stored, and separately what is on its way in or out, each has a limit of bytes. One reply
 *                   and what one turn reads may come on top for a moment. If the
 *                   store is full, the connection that wants to store more is closed. A large reply is built when at
 *                   most half of the limit is on its way with it, so that many clients can get one large value. While a
 *                   reply waits for that, connections whose unfinished bytes have not moved for `stall_ms` are closed.
 *                   If requests still pass the limit, one of these is closed: a stalled connection, or else the one
 *                   whose request has been unfinished for the longest time
 *   connections     beyond the limit, a new one replaces the oldest one whose only requests are VALIDATE and PING, or that has
 *                   none. Such connections do not keep the server running
 *   bytes           a connection that breaks the protocol or its limits is closed
 *   time            each connection reads at most READ_TURN bytes before the others have their turn; `linger_ms` ends
 *                   the server whatever its clients do */

struct tcpstore_options {
    int listener; /* non-blocking; the server closes it */
    int owner; /* read end of the owner's pipe: at its end of file the owner's workers have ended. -1: none */
    size_t store_limit, traffic_limit; /* bytes; 0: the usual ones */
    size_t clients_limit;              /* 0: what the limit of open files allows */
    int64_t stall_ms;                  /* 0: the usual time */
    int64_t linger_ms;                 /* how long clients may stay after the owner's workers have ended */
};

/* Returns when the server has ended as above. */
MUST_CHECK enum err_code tcpstore_serve(const struct tcpstore_options *options, struct err *e);

#endif
