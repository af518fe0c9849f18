#include "daemon/coordinator/web/web_listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"

static void listen_free_info(struct addrinfo **at)
{
    if (*at)
        freeaddrinfo(*at);
}

static enum err_code listen_resolve(const char *address, struct addrinfo **out, struct err *e)
{
    CLEANUP(free_text) char *host = xstrdup(address);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    char *colon = strrchr(host, ':'), *name = host;
    if (!colon)
        return err_set(e, ERR_INVALID_ARGUMENT, "web '%s': expected HOST:PORT", address);
    *colon = '\0';
    const size_t len = strlen(host);
    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        name++;
    }
    const int rc = getaddrinfo(name, colon + 1, &hints, out);
    return rc == 0 ? ERR_OK : err_set(e, ERR_INVALID_ARGUMENT, "web '%s': %s", address, gai_strerror(rc));
}

static bool listen_is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

enum err_code web_listen(int *fd, const char *address, bool tls, struct err *e)
{
    CLEANUP(listen_free_info) struct addrinfo *at = NULL;
    CLEANUP(close_fd) int made = -1;
    const int one = 1, off = 0;
    if (listen_resolve(address, &at, e) != ERR_OK)
        return e->code;
    if (!tls && !listen_is_loopback(at->ai_addr))
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "web '%s': without TLS the page is served at a loopback address only, because tokens would cross the "
            "network unencrypted: set the files of `tls`, or web: \"127.0.0.1:29602\"",
            address);
    made = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0 || setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        (at->ai_family == AF_INET6 && setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) != 0) ||
        bind(made, at->ai_addr, at->ai_addrlen) != 0)
        return err_sys(e, errno, "listen for the web page on %s", address);
    *fd = made;
    made = -1;
    return ERR_OK;
}
