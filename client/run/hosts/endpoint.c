#include "client/run/hosts/endpoint.h"

#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

#define PATIENCE_MS 1000

static char *endpoint_join_text(const char *host, int64_t port)
{
    return xasprintf(strchr(host, ':') ? "[%s]:%lld" : "%s:%lld", host, (long long)port);
}

static bool address_is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

static bool address_equal(const struct sockaddr *a, const struct sockaddr *b)
{
    if (a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return memcmp(&((const struct sockaddr_in *)a)->sin_addr, &((const struct sockaddr_in *)b)->sin_addr,
                      sizeof(struct in_addr)) == 0;
    return a->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, &((const struct sockaddr_in6 *)b)->sin6_addr,
                  sizeof(struct in6_addr)) == 0;
}

static bool address_is_own(const struct sockaddr *address)
{
    struct ifaddrs *list = NULL;
    bool own = address_is_loopback(address);
    if (getifaddrs(&list) != 0)
        return own;
    for (const struct ifaddrs *i = list; i && !own; i = i->ifa_next)
        own = i->ifa_addr && address_equal(i->ifa_addr, address);
    freeifaddrs(list);
    return own;
}

/* This machine's host name, in full or up to its first dot. */
static bool host_is_own_name(const char *host)
{
    char name[HOST_NAME_MAX + 1] = "";
    if (gethostname(name, sizeof(name)) != 0 || !*name)
        return false;
    size_t len = strcspn(name, ".");
    return strcasecmp(name, host) == 0 || (strncasecmp(name, host, len) == 0 && !host[len]);
}

static bool host_is_numeric(const char *host)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    if (getaddrinfo(host, NULL, &hints, &found) != 0)
        return false;
    freeaddrinfo(found);
    return true;
}

static char *address_numeric_text(const struct addrinfo *a)
{
    char host[NI_MAXHOST];
    if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof(host), NULL, 0, NI_NUMERICHOST) != 0)
        return NULL;
    return xstrdup(host);
}

/* "[::]" also accepts IPv4 connections, but machines without IPv6 cannot bind it. */
static const char *endpoint_every_address(void)
{
    const struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    CLEANUP(close_fd) int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && bind(fd, (const struct sockaddr *)&any, sizeof(any)) == 0 ? "::" : "0.0.0.0";
}

/* Decides what to bind. A name may resolve to 127.0.1.1 on this machine and to another address elsewhere
 * (Debian's /etc/hosts). So for a name all addresses are bound, and a loopback address is not given to peers.
 */
static void endpoint_settle(struct endpoint *out, const char *host, int64_t port,
                            const struct addrinfo *found)
{
    bool number = host_is_numeric(host), local = strcasecmp(host, "localhost") == 0;
    /* the host's own name may resolve to a loopback address here, but other machines can meet there */
    out->loopback = found && (number || local);
    for (const struct addrinfo *a = found; a; a = a->ai_next) {
        out->loopback = out->loopback && address_is_loopback(a->ai_addr);
        if (!address_is_own(a->ai_addr))
            continue;
        out->own = true;
        if (!out->node && (number || local || !address_is_loopback(a->ai_addr)))
            out->node = address_numeric_text(a);
    }
    out->own = out->own || host_is_own_name(host);
    out->listen =
        endpoint_join_text(out->node && (number || local) ? out->node : endpoint_every_address(), port);
}

enum err_code endpoint_find(struct endpoint *out, const char *host, int64_t port, struct err *e)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host, NULL, &hints, &found);
    *out = (struct endpoint){0};
    if (rc != 0 && !host_is_own_name(host))
        return err_set(e, ERR_UNAVAILABLE, "%s: %s", host, gai_strerror(rc));
    out->address = endpoint_join_text(host, port);
    endpoint_settle(out, host, port, rc == 0 ? found : NULL);
    if (rc == 0)
        freeaddrinfo(found);
    return ERR_OK;
}

void endpoint_release(struct endpoint *endpoint)
{
    free(endpoint->address);
    free(endpoint->listen);
    free(endpoint->node);
    *endpoint = (struct endpoint){0};
}

/* The addresses of "host:port" or "[v6]:port", as endpoint_join_text writes them; NULL: there are none. */
static struct addrinfo *endpoint_resolve(const char *text)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    CLEANUP(free_text) char *copy = xstrdup(text);
    struct addrinfo *found = NULL;
    char *colon = strrchr(copy, ':'), *host = copy;
    *colon = 0;
    if (*host == '[') {
        host++;
        colon[-1] = 0;
    }
    return getaddrinfo(host, colon + 1, &hints, &found) == 0 ? found : NULL;
}

bool endpoint_taken(const struct endpoint *endpoint)
{
    struct addrinfo *found = endpoint_resolve(endpoint->listen);
    const int yes = 1;
    bool taken = false;
    if (!found)
        return false;
    CLEANUP(close_fd) int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0)
        taken = bind(fd, found->ai_addr, found->ai_addrlen) != 0 && errno == EADDRINUSE;
    freeaddrinfo(found);
    return taken;
}

static bool endpoint_connect_refused(const struct addrinfo *to)
{
    CLEANUP(close_fd) int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int cause = 0;
    socklen_t size = sizeof(cause);
    if (fd < 0)
        return false;
    if (connect(fd, to->ai_addr, to->ai_addrlen) != 0 && errno != EINPROGRESS)
        return errno == ECONNREFUSED;
    return poll(&p, 1, PATIENCE_MS) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &cause, &size) == 0 &&
           cause == ECONNREFUSED;
}

bool endpoint_gone(struct endpoint *endpoint, int64_t now_ms)
{
    if (endpoint->asked_ms && now_ms < endpoint->asked_ms + ENDPOINT_ASK_MS)
        return false;
    endpoint->asked_ms = now_ms;
    return endpoint_refuses(endpoint);
}

bool endpoint_refuses(const struct endpoint *endpoint)
{
    struct addrinfo *found = endpoint_resolve(endpoint->address);
    bool all = found != NULL;
    for (const struct addrinfo *a = found; a && all; a = a->ai_next)
        all = endpoint_connect_refused(a);
    if (found)
        freeaddrinfo(found);
    return all;
}
