#ifndef DDP_BASE_WEB_WEB_SERVER_H
#define DDP_BASE_WEB_WEB_SERVER_H

#include <stdint.h>

#include "base/err.h"
#include "base/web/web_door.h"
#include "base/web/web_levels.h"
#include "base/web/web_reply.h"
#include "base/web/web_request.h"
#include "base/web/web_tls.h"

/* An HTTP server for the page and its API, either on 127.0.0.1 for everyone who knows its key, or on a given socket for
 * browsers that log in.
 *
 * One thread does all input and output (libmicrohttpd). It checks and parses a request (web_access.h, web_request.h).
 * A few threads answer requests, because an answer waits for the coordinator; meanwhile the connection is suspended. Answers that
 * wait for nodes, and all answers of one user, get some of the threads (web_workers.h). So neither a slow answer nor a slow reader
 * delays others, and no user holds all connections, streams or memory (web_connections.h).
 * GET /api/watch is answered from the levels and never ends (web_stream.h). */

/* The sender of a request. */
struct web_asker {
    struct web_login *login; /* NULL: a server with a key, or a request to log in */
    const char *address;     /* "10.0.0.7" */
};

struct web_options {
    const char *page;
    size_t page_size;
    /* Answers a request of any route but WEB_PAGE and WEB_WATCH. Called by several threads at once. */
    void (*answer)(void *user, const struct web_asker *asker, const struct web_request *request,
                   struct web_reply *reply);
    void *user;
    /* with a key */
    uint16_t port; /* 0: a free one */
    const char *key;
    struct web_levels *levels;
    /* with logins */
    const struct web_door *door;     /* NULL: a server with a key */
    int listener;                    /* a bound socket, which belongs to the server from then on */
    const struct web_tls_files *tls; /* NULL: plain text */
};

struct web_server;
/* Texts, levels and door are borrowed until web_server_close. ALREADY_EXISTS: the port is in use. */
MUST_CHECK enum err_code web_server_open(struct web_server **out, const struct web_options *options,
                                         struct err *e);
uint16_t web_server_port(const struct web_server *s);
/* Ends connections whose request has not arrived within a minute. Each new connection does the same, so the call is
 * optional. Any thread; the time of clock_boot_ms. */
void web_server_tick(struct web_server *s, int64_t now_ms);
/* Waits for the answers that are being made, so the caller makes sure that they end. Ends all connections. NULL is
 * allowed. */
void web_server_close(struct web_server *s);

#endif
