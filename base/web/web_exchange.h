#ifndef DDP_BASE_WEB_WEB_EXCHANGE_H
#define DDP_BASE_WEB_WEB_EXCHANGE_H

#include <microhttpd.h>

#include "base/web/web_access.h"
#include "base/web/web_connections.h"
#include "base/web/web_guests.h"
#include "base/web/web_page.h"
#include "base/web/web_server.h"
#include "base/web/web_workers.h"

/* One request of a server and its answer. libmicrohttpd calls these functions, in the server's thread. */

struct web_server {
    struct web_options options;
    struct web_page page;
    struct web_workers *workers;
    struct MHD_Daemon *daemon;
    struct web_tls *tls; /* NULL: plain text */
    struct web_rules rules;
    char cookie[32]; /* its name */
    uint16_t port;
    bool ending;
    struct web_guests guests; /* used by the server's thread only */
    struct web_connections connections;
};

struct web_server_connection { /* the context of each connection */
    struct web_guest guest;
    struct web_connection held;
};

/* With the request line: gives the exchange that later calls get as their state. */
void *web_exchange_begin(void *server, const char *uri, struct MHD_Connection *connection);
/* With the headers, with each part of the body, at its end, and when a worker has answered. */
enum MHD_Result web_exchange_go_on(void *server, struct MHD_Connection *connection, const char *url,
                                   const char *method, const char *version, const char *upload,
                                   size_t *upload_size, void **state);
void web_exchange_end(void *server, struct MHD_Connection *connection, void **state,
                      enum MHD_RequestTerminationCode why);

#endif
