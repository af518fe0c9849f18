#include "base/net/tcp_listen.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

/* 0, or an error of getaddrinfo. flags: AI_NUMERICHOST, or 0. */
static int host_look_up(struct addrinfo **out, const char *host, uint16_t port, int flags)
{
    struct addrinfo hints = {.ai_flags = flags | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    char service[8];

    snprintf(service, sizeof(service), "%u", port);
    return getaddrinfo(host, service, &hints, out);
}

enum err_code tcp_resolve_host(struct addrinfo **out, const char *host, uint16_t port, struct err *e)
{
    int rc = host_look_up(out, host, port, AI_NUMERICHOST);

    if (rc)
        rc = host_look_up(out, host, port, 0);
    if (rc)
        return err_set(e, ERR_INVALID_ARGUMENT, "cannot resolve address '%s': %s", host, gai_strerror(rc));
    return ERR_OK;
}

void tcp_free_info(struct addrinfo **at)
{
    if (*at)
        freeaddrinfo(*at);
}

uint16_t tcp_bound_port(int fd)
{
    struct sockaddr_storage name;
    socklen_t size = sizeof(name);

    if (getsockname(fd, (struct sockaddr *)&name, &size))
        return 0;
    return ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
                                            : ((struct sockaddr_in *)&name)->sin_port);
}

static int tcp_socket(int family)
{
    /* Connections of an earlier process that linger in TIME_WAIT must not keep a fixed port. */
    int one = 1, fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    return fd;
}

/* Binds every interface, with IPv4 and IPv6 if the machine has both. */
static enum err_code bind_any(int *fd, uint16_t port, struct err *e)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any, .sin6_port = htons(port)};
    struct sockaddr_in four = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY), .sin_port = htons(port)};
    int off = 0;

    *fd = tcp_socket(AF_INET6);
    if (*fd >= 0 && !setsockopt(*fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) &&
        !bind(*fd, (struct sockaddr *)&six, sizeof(six)))
        return ERR_OK;
    close_fd(fd);
    *fd = tcp_socket(AF_INET);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&four, sizeof(four)))
        return err_sys(e, errno, "listen on every interface");
    return ERR_OK;
}

enum err_code tcp_bind_host(int *fd, const char *host, uint16_t port, struct err *e)
{
    CLEANUP(tcp_free_info) struct addrinfo *at = NULL;

    if (host_look_up(&at, host, port, AI_NUMERICHOST))
        return bind_any(fd, port, e);
    *fd = tcp_socket(at->ai_family);
    if (*fd < 0)
        return err_sys(e, errno, "socket for %s", host);
    if (!bind(*fd, at->ai_addr, at->ai_addrlen))
        return ERR_OK;
    if (errno != EADDRNOTAVAIL)
        return err_sys(e, errno, "listen on %s", host);
    close_fd(fd);
    return bind_any(fd, port, e);
}

void tcp_tune(int fd)
{
    int one = 1, idle = 10, interval = 3, probes = 4;

    /* On a unix socket the TCP options fail, and are not needed. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}
