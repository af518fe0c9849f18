#include "proto/rpc_gate.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crypto/id.h"
#include "base/mem.h"
#include "proto/rpc_address.h"
#include "proto/rpc_gate_run.h"

#define BACKLOG 4096
#define DESCRIPTORS_KEPT 256 /* descriptors left for the rest of the process */
#define DESCRIPTORS_EACH                                                                                     \
    3 /* descriptors of a connection: the client's, and both ends of the connection to gRPC */
#define TOTAL_LEAST 16
#define STRANGERS 2048

static size_t limit_or_default(size_t wanted, size_t otherwise)
{
    return wanted ? wanted : otherwise;
}

static struct rpc_limits gate_resolve_limits(const struct rpc_limits *wanted)
{
    struct rlimit files = {.rlim_cur = 1024};
    struct rpc_limits limits;
    size_t total = TOTAL_LEAST;

    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur > DESCRIPTORS_KEPT + TOTAL_LEAST * DESCRIPTORS_EACH)
        total = (files.rlim_cur - DESCRIPTORS_KEPT) / DESCRIPTORS_EACH;
    /* If connections used up the descriptors, agents would be refused. With a limit below that an
     * unauthenticated connection is dropped instead. */
    limits.total = wanted->total && wanted->total < total ? wanted->total : total;
    limits.per_address = limit_or_default(wanted->per_address, limits.total);
    limits.unauthenticated = limits.total / 3 < STRANGERS ? limits.total / 3 : STRANGERS;
    limits.unauthenticated = limit_or_default(wanted->unauthenticated, limits.unauthenticated);
    limits.unauthenticated_per_address =
        limit_or_default(wanted->unauthenticated_per_address, (limits.unauthenticated + 1) / 2);
    return limits;
}

static enum err_code gate_resolve_dir(struct rpc_gate *gate, const char *dir, struct err *e)
{
    const char *temporary = getenv("TMPDIR");

    if (dir) {
        gate->dir = xstrdup(dir);
        return ERR_OK;
    }
    gate->dir = xasprintf("%s/ddp-gate-XXXXXX", temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(gate->dir))
        return err_sys(e, errno, "%s", gate->dir);
    gate->own_dir = true;
    return ERR_OK;
}

enum err_code rpc_gate_create(struct rpc_gate **out, const struct rpc_limits *limits, const char *dir,
                              struct err *e)
{
    struct rpc_gate *gate = xcalloc(1, sizeof(*gate));
    const struct rpc_limits settled = gate_resolve_limits(limits);
    uint64_t random
        [2]; /* random, so that nobody can guess collisions in the table or the names of the sockets towards gRPC */

    id_random(random, sizeof(random));
    pthread_mutex_init(&gate->lock, NULL);
    rpc_connections_init(&gate->connections, &settled, random[0]);
    snprintf(gate->prefix, sizeof(gate->prefix), "ddp-%016llx-", (unsigned long long)random[1]);
    gate->handovers = 1;
    gate->scratch = xmalloc(RPC_GATE_SCRATCH);
    gate->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    gate->epoll = epoll_create1(EPOLL_CLOEXEC);
    gate->wake =
        (struct rpc_gate_socket){.kind = RPC_SOCKET_WAKE, .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    if (gate->spare_fd < 0 || gate->epoll < 0 || gate->wake.fd < 0)
        err_sys(e, errno, "descriptors for the connections");
    else if (gate_resolve_dir(gate, dir, e) == ERR_OK) {
        gate_socket_set_events(gate, &gate->wake, EPOLLIN);
        *out = gate;
        return ERR_OK;
    }
    rpc_gate_free(gate);
    return e->code;
}

/* ---- listening ---- */

static void address_set_port(struct sockaddr *address, int port)
{
    if (address->sa_family == AF_INET)
        ((struct sockaddr_in *)address)->sin_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in6 *)address)->sin6_port = htons((uint16_t)port);
}

static int socket_get_port(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof(address);

    getsockname(fd, (struct sockaddr *)&address, &size);
    return ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                              : ((struct sockaddr_in6 *)&address)->sin6_port);
}

/* 0, or an errno. */
static int gate_socket_listen(struct rpc_gate_socket *sock, const struct addrinfo *a, int port)
{
    CLEANUP(close_fd)
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    struct sockaddr_storage address = {0};
    const int one = 1, zero = 0;

    memcpy(&address, a->ai_addr, a->ai_addrlen);
    address_set_port((struct sockaddr *)&address, port);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
        (a->ai_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero))) ||
        bind(fd, (const struct sockaddr *)&address, a->ai_addrlen) || listen(fd, BACKLOG))
        return errno;
    sock->fd = fd;
    fd = -1;
    return 0;
}

/* A name may resolve to addresses that this machine does not have, so one address that works is enough. A
 * port that is in use is an error, since another program would get the calls to that address. */
static enum err_code tcp_listener_listen(struct rpc_tcp_listener *listener, const struct addrinfo *found,
                                         int *port, const char *text, struct err *e)
{
    int reason = 0;

    for (const struct addrinfo *a = found; a && listener->socket_count < ARRAY_LEN(listener->sockets);
         a = a->ai_next) {
        struct rpc_gate_socket *sock = &listener->sockets[listener->socket_count];

        *sock = (struct rpc_gate_socket){.kind = RPC_SOCKET_LISTENER, .fd = -1, .owner = listener};
        reason = gate_socket_listen(sock, a, *port);
        if (reason == EADDRINUSE)
            return err_sys(e, reason, "listen on %s", text);
        if (reason)
            continue;
        *port = socket_get_port(sock->fd);
        listener->socket_count++;
    }
    return listener->socket_count ? ERR_OK : err_sys(e, reason, "listen on %s", text);
}

static void tcp_listener_free(struct rpc_tcp_listener *listener)
{
    for (size_t i = 0; i < ARRAY_LEN(listener->sockets); i++)
        close_fd(&listener->sockets[i].fd);
    if (listener->path)
        unlink(listener->path);
    free(listener->path);
    free(listener);
}

static struct rpc_tcp_listener *tcp_listener_create(bool tls)
{
    struct rpc_tcp_listener *listener = xcalloc(1, sizeof(*listener));

    listener->tls = tls;
    for (size_t i = 0; i < ARRAY_LEN(listener->sockets); i++)
        listener->sockets[i].fd = -1;
    return listener;
}

static enum err_code tcp_listener_open(struct rpc_gate *gate, struct rpc_tcp_listener *listener,
                                       const char *text, int *port, struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found;
    const struct rpc_tcp_listener *last = gate->listeners;
    struct rpc_address address;
    char service[16];

    if (rpc_address_parse(text, &address, e))
        return e->code;
    if (address.path)
        return err_set(e, ERR_INVALID_ARGUMENT, "invalid address '%s': expected host:port or [v6]:port",
                       text);
    listener->order = last ? last->order + 1 : 0;
    listener->path = xasprintf("%s/gate-%d.sock", gate->dir, listener->order);
    if (strlen(listener->path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "'%s': the path of a unix socket must be shorter than 108 bytes", listener->path);
    snprintf(service, sizeof(service), "%d", address.port);
    const int failed = getaddrinfo(address.host, service, &hints, &found);
    if (failed)
        return err_set(e, ERR_INVALID_ARGUMENT, "listen on %s: %s", text, gai_strerror(failed));
    *port = address.port;
    const enum err_code code = tcp_listener_listen(listener, found, port, text, e);
    freeaddrinfo(found);
    return code;
}

enum err_code rpc_gate_listen(struct rpc_gate *gate, const char *address, bool tls, int *port,
                              const char **path, struct err *e)
{
    struct rpc_tcp_listener *listener = tcp_listener_create(tls);
    int bound = 0;

    BUG_ON(gate->started);
    if (tcp_listener_open(gate, listener, address, &bound, e) != ERR_OK) {
        tcp_listener_free(listener);
        return e->code;
    }
    for (size_t i = 0; i < listener->socket_count; i++)
        gate_socket_set_events(gate, &listener->sockets[i], EPOLLIN);
    listener->next = gate->listeners;
    gate->listeners = listener;
    *port = bound;
    *path = listener->path;
    return ERR_OK;
}

/* ---- life ---- */

void rpc_gate_start(struct rpc_gate *gate)
{
    sigset_t all, old;
    int failed;

    gate->checked_ms = clock_boot_ms();
    sigfillset(&all); /* signals are for the loop's thread */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    failed = pthread_create(&gate->thread, NULL, gate_run, gate);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    BUG_ON(failed);
    gate->started = true;
}

static void gate_wake(struct rpc_gate *gate)
{
    const uint64_t one = 1;

    BUG_ON(write(gate->wake.fd, &one, sizeof(one)) < 0 && errno != EAGAIN);
}

void rpc_gate_shut(struct rpc_gate *gate)
{
    for (const struct rpc_tcp_listener *listener = gate->listeners; listener; listener = listener->next)
        for (size_t i = 0; i < listener->socket_count; i++)
            shutdown(listener->sockets[i].fd,
                     SHUT_RD); /* refuses connections from now on; the thread closes it */
    atomic_store(&gate->shut, true);
    gate_wake(gate);
}

void rpc_gate_free(struct rpc_gate *gate)
{
    if (!gate)
        return;
    if (gate->started) {
        atomic_store(&gate->shut, true);
        atomic_store(&gate->stop, true);
        gate_wake(gate);
        pthread_join(gate->thread, NULL);
    }
    while (gate->listeners) {
        struct rpc_tcp_listener *listener = gate->listeners;
        gate->listeners = listener->next;
        tcp_listener_free(listener);
    }
    if (gate->own_dir)
        rmdir(gate->dir);
    free(gate->dir);
    rpc_connections_release(&gate->connections);
    close_fd(&gate->spare_fd);
    close_fd(&gate->epoll);
    close_fd(&gate->wake.fd);
    pthread_mutex_destroy(&gate->lock);
    free(gate->scratch);
    free(gate);
}

/* ---- questions and reports of the server ---- */

bool rpc_gate_peer(const struct rpc_gate *gate, const char *name, uint64_t *number, const char **address)
{
    const size_t len = strlen(gate->prefix);
    char *end;

    if (strncmp(name, gate->prefix, len) != 0)
        return false;
    *number = strtoull(name + len, &end, 10);
    if (end == name + len || *end != '-')
        return false;
    *address = end + 1;
    return true;
}

void rpc_gate_report_call(struct rpc_gate *gate, uint64_t number, bool admitted)
{
    bool news = false;

    /* The connection may be gone, and one that was admitted stays so, whatever its later calls are
     * refused. */
    pthread_mutex_lock(&gate->lock);
    struct rpc_relay *relay = gate->table[number & (RPC_GATE_TABLE - 1)];
    while (relay && relay->number != number)
        relay = relay->chain;
    if (relay && relay->connection.stage == RPC_TRIED) {
        news = admitted || !relay->refused;
        relay->refused = !admitted;
        if (admitted) {
            atomic_store(&relay->admitted, true);
            rpc_connections_move(&gate->connections, &relay->connection, RPC_ADMITTED);
            gate->handovers += relay_handover_cost(relay); /* only unauthenticated connections are limited */
        } else {
            rpc_connections_move_front(&gate->connections, &relay->connection); /* the next to be dropped */
        }
    }
    pthread_mutex_unlock(&gate->lock);
    if (news)
        gate_wake(gate); /* its limits end, or it may be dropped for another */
}

void rpc_gate_take_traffic(struct rpc_gate *gate, struct rpc_traffic *out)
{
    const int64_t now = clock_boot_ms();

    pthread_mutex_lock(&gate->lock);
    *out = gate->report;
    out->connections = gate->connections.total;
    out->unauthenticated = rpc_connections_unauthenticated(&gate->connections);
    gate->report.deaf_ms = gate->report.shut_ms = 0;
    if (gate->started &&
        now - gate->checked_ms > RPC_GATE_LATE_MS) { /* the thread is not running at the moment */
        out->deaf_ms += now - gate->checked_ms;
        gate->checked_ms = now;
    }
    pthread_mutex_unlock(&gate->lock);
}
