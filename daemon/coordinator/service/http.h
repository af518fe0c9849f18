#ifndef DDP_DAEMON_COORDINATOR_SERVICE_HTTP_H
#define DDP_DAEMON_COORDINATOR_SERVICE_HTTP_H

#include "base/buf.h"
#include "base/err.h"

/* GET /metrics on a thread of its own, from the last text it was given: it never touches the coordinator's
 * state. */
struct http;

/* address: "127.0.0.1:29601" or "[::1]:29601". */
MUST_CHECK enum err_code http_open(struct http **out, const char *address, struct err *e);
void http_publish(struct http *h, struct buf *text); /* takes the bytes over; h NULL: drops them */
void http_close(struct http *h);                     /* NULL is fine */

#endif
