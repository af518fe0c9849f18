#ifndef DDP_DAEMON_COORDINATOR_WEB_WEB_LISTEN_H
#define DDP_DAEMON_COORDINATOR_WEB_WEB_LISTEN_H

#include <stdbool.h>

#include "base/err.h"

/* Binds "host:port" or "[v6]:port" for the page; "[::]" also takes IPv4. *fd belongs to the caller and does not listen
 * yet. FAILED_PRECONDITION: there is no TLS and the address is not a loopback address, so tokens and cookies would
 * cross a network unencrypted. */
MUST_CHECK enum err_code web_listen(int *fd, const char *address, bool tls, struct err *e);

#endif
