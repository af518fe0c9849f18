#ifndef DDP_CLIENT_DIAGNOSE_REACH_H
#define DDP_CLIENT_DIAGNOSE_REACH_H

#include <stdbool.h>

/* Whether something takes TCP connections at "host:port": tells a coordinator that is not there from one that
 * hangs up on us. Waits a second at most for each of the host's addresses; false for a unix socket. */
bool reach_listens(const char *address);

#endif
