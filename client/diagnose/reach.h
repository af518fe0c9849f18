#ifndef DDP_CLIENT_DIAGNOSE_REACH_H
#define DDP_CLIENT_DIAGNOSE_REACH_H

#include <stdbool.h>

/* True if something accepts TCP connections at "host:port". This tells a coordinator that is not running from
 * a program that closes the connection. Waits one second at most for each of the host's addresses. False for
 * a unix socket. */
bool reach_listens(const char *address);

#endif
