#ifndef DDP_BASE_WEB_WEB_GUESTS_H
#define DDP_BASE_WEB_WEB_GUESTS_H

#include <stdbool.h>
#include <stddef.h>

/* Connections that have not shown the key yet. Anyone on the machine can open them, and on loopback all have one address, so they
 * are limited all together: a new one beyond the limit ends the oldest. So others cannot keep a viewer out, whose
 * browser sends the key as soon as it is connected. One thread. */

struct web_guest {
    int fd; /* borrowed */
    bool waits;
    struct web_guest *older, *newer;
};
struct web_guests { /* zeroed but for `most`, it is empty */
    size_t count, most;
    struct web_guest *oldest, *newest;
};

/* Puts the connection on the list. If the list is full, shuts down the socket of the oldest connection, which leaves it. */
void web_guests_add(struct web_guests *g, struct web_guest *guest);
/* The connection has shown the key, or has ended. Allowed for one that is not on the list. */
void web_guests_remove(struct web_guests *g, struct web_guest *guest);

#endif
