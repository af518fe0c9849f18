#include "base/web/web_guests.h"

#include <sys/socket.h>

void web_guests_remove(struct web_guests *g, struct web_guest *guest)
{
    if (!guest->waits)
        return;
    *(guest->older ? &guest->older->newer : &g->oldest) = guest->newer;
    *(guest->newer ? &guest->newer->older : &g->newest) = guest->older;
    guest->waits = false;
    g->count--;
}

void web_guests_add(struct web_guests *g, struct web_guest *guest)
{
    struct web_guest *oldest = g->oldest;
    if (oldest && g->count >= g->most) {
        web_guests_remove(g, oldest);
        /* The server closes the socket itself, when it reads the end of the stream. */
        shutdown(oldest->fd, SHUT_RDWR);
    }
    guest->older = g->newest;
    guest->newer = NULL;
    *(g->newest ? &g->newest->newer : &g->oldest) = guest;
    g->newest = guest;
    guest->waits = true;
    g->count++;
}
