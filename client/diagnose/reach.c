#include "client/diagnose/reach.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/rpc_address.h"

#define PATIENCE_MS 1000

static bool reach_connects(const struct addrinfo *to)
{
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), failed = 0;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    socklen_t size = sizeof(failed);
    bool done;

    if (fd < 0)
        return false;
    done = connect(fd, to->ai_addr, to->ai_addrlen) == 0;
    if (!done && errno == EINPROGRESS && poll(&p, 1, PATIENCE_MS) == 1)
        done = getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) == 0 && failed == 0;
    close(fd);
    return done;
}

bool reach_listens(const char *address)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    struct rpc_address a;
    char port[8];
    bool listens = false;
    struct err e;

    if (rpc_address_parse(address, &a, &e) || a.path)
        return false;
    snprintf(port, sizeof(port), "%d", a.port);
    if (getaddrinfo(a.host, port, &hints, &found))
        return false;
    for (const struct addrinfo *i = found; i && !listens; i = i->ai_next)
        listens = reach_connects(i);
    freeaddrinfo(found);
    return listens;
}
