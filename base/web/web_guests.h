#ifndef DDP_BASE_WEB_WEB_GUESTS_H
#define DDP_BASE_WEB_WEB_GUESTS_H

#include <stdbool.h>
#include <stddef.h>

/* Guests: connections that have shown neither the key nor a login. Anyone on the machine can open them, and on loopback
 * all have the same address. So there is one limit for all of them, and beyond it a new connection ends the oldest.
 * This way others cannot keep a viewer out, because a browser sends the key as soon as it is connected. One thread. */

struct web_guest {
    int fd; /* borrowed */
    bool waits;
    struct web_guest *older, *newer;
};
struct web_guests { /* empty when all fields but `most` are zero */
    size_t count, most;
    struct web_guest *oldest, *newest;
};

/* Puts the connection on the list. If the list is full, shuts down the socket of the oldest connection, which leaves it. */
void web_guests_add(struct web_guests *g, struct web_guest *guest);
/* The connection has shown the key or a login, or has ended. A connection that is not on the list is ignored. */
void web_guests_remove(struct web_guests *g, struct web_guest *guest);

#endif
