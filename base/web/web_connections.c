#include "base/web/web_connections.h"

#include <sys/socket.h>

#include "base/err.h"

void web_connections_init(struct web_connections *c)
{
    *c = (struct web_connections){.list = NULL};
    pthread_mutex_init(&c->lock, NULL);
}

void web_connections_release(struct web_connections *c)
{
    BUG_ON(c->list);
    pthread_mutex_destroy(&c->lock);
}

void web_connections_add(struct web_connections *c, struct web_connection *connection, int64_t now_ms)
{
    pthread_mutex_lock(&c->lock);
    connection->waits_since_ms = now_ms;
    connection->next = c->list;
    c->list = connection;
    pthread_mutex_unlock(&c->lock);
}

void web_connections_remove(struct web_connections *c, const struct web_connection *connection)
{
    pthread_mutex_lock(&c->lock);
    struct web_connection **at = &c->list;
    while (*at != connection)
        at = &(*at)->next;
    *at = connection->next;
    pthread_mutex_unlock(&c->lock);
}

void web_connections_wait(struct web_connections *c, struct web_connection *connection, int64_t since_ms)
{
    pthread_mutex_lock(&c->lock);
    connection->waits_since_ms = since_ms;
    pthread_mutex_unlock(&c->lock);
}

struct web_share web_connections_share(const struct web_connections *c, uint64_t owner)
{
    struct web_share share = {0};
    for (const struct web_connection *at = c->list; at; at = at->next) {
        if (owner && at->owner != owner)
            continue;
        share.connections++;
        share.streams += at->streams;
        share.bytes += at->bytes;
    }
    return share;
}

void web_connections_end_late(struct web_connections *c, int64_t since_ms)
{
    pthread_mutex_lock(&c->lock);
    for (struct web_connection *at = c->list; at; at = at->next) {
        if (!at->waits_since_ms || at->waits_since_ms > since_ms)
            continue;
        at->waits_since_ms = 0;      /* once */
        shutdown(at->fd, SHUT_RDWR); /* only its owner closes it */
    }
    pthread_mutex_unlock(&c->lock);
}
