#ifndef DDP_DAEMON_COORDINATOR_SERVICE_METRICS_HTTP_H
#define DDP_DAEMON_COORDINATOR_SERVICE_METRICS_HTTP_H

#include "base/buf.h"
#include "base/err.h"

/* Serves GET /metrics from a thread of its own. It replies with the last published page and never touches the
 * coordinator's state, so a slow client cannot delay the loop. */
struct http;

/* address: "127.0.0.1:29601" or "[::1]:29601". INVALID_ARGUMENT: it is not an address. */
MUST_CHECK enum err_code http_open(struct http **out, const char *address, struct err *e);
void http_publish(struct http *h, struct buf *text); /* takes the text's memory; h NULL: frees it */
void http_close(struct http *h);                     /* NULL is fine */

#endif
