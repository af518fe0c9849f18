#ifndef DDP_BASE_WEB_WEB_CONNECTIONS_H
#define DDP_BASE_WEB_WEB_CONNECTIONS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The connections of a server: since when each waits for a request, and which resources the requests of each user hold.
 *
 * One thread, that of the server. Any other thread may call web_connections_end_late. */

struct web_connection {
    int fd;         /* borrowed */
    uint64_t owner; /* web_login.owner of its last request; 0: none */
    bool streams;   /* it watches */
    size_t bytes;   /* memory for the body of its request, or for its answer */
    /* Since when the server waits for its next request, or for the rest of a request. 0: the request has come. */
    int64_t waits_since_ms;
    struct web_connection *next;
};
struct web_connections {
    pthread_mutex_t lock; /* protects the list, and waits_since_ms */
    struct web_connection *list;
};
struct web_share {
    size_t connections, streams, bytes;
};

void web_connections_init(struct web_connections *c);
void web_connections_release(struct web_connections *c); /* none may be left */
void web_connections_add(struct web_connections *c, struct web_connection *connection, int64_t now_ms);
void web_connections_remove(struct web_connections *c, const struct web_connection *connection);
void web_connections_wait(struct web_connections *c, struct web_connection *connection, int64_t since_ms);
/* What the connections of this owner hold; 0: all connections. */
struct web_share web_connections_share(const struct web_connections *c, uint64_t owner);
/* Shuts down the sockets that have waited for a complete request since this time or longer. A client that sends a byte from
 * time to time is never idle, so no other time limit ends its connection. */
void web_connections_end_late(struct web_connections *c, int64_t since_ms);

#endif
