#ifndef DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELL_HTTP_H
#define DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELL_HTTP_H

#include <stddef.h>
#include <uv.h>

#include "base/err.h"
#include "daemon/coordinator/service/tell/tell_attempt.h"

/* POST requests by libcurl, from a thread of its own, because libcurl may block in the resolver and during TLS
 * handshakes. Redirections are not followed, certificates are checked, answers are read up to a limit. */
struct tell_http;

struct tell_request {
    const char *url;
    char *const *headers;
    const char *body;
    size_t size;
    int64_t timeout_ms;
    bool public_only; /* connect to public addresses only, and to no proxy */
};

/* ca: a file of certificates in place of the system's; NULL: the system's. RESOURCE_EXHAUSTED: no thread can be made. */
MUST_CHECK enum err_code tell_http_open(struct tell_http **out, uv_loop_t *loop, const char *ca,
                                        struct err *e);
/* Copies the request. */
void tell_http_post(struct tell_http *h, const struct tell_request *request, tell_done_fn done, void *user);
/* Ends the thread. Requests that have no answer yet get none; `done` is not called for them. The handle on the
 * loop is closed with the loop's others, so tell_http_free comes after the loop. */
void tell_http_stop(struct tell_http *h);
void tell_http_free(struct tell_http *h); /* NULL is fine */

#endif
