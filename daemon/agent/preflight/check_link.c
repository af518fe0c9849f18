#include "daemon/agent/preflight/check_link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

#define CALLERS 512
#define CONNECT_MS 3000
#define MEASURE_MS 300
#define MEASURE_MOST (256u << 20)
#define PIECE (256 << 10)
#define LINGER_MS 4000 /* after the last caller; not longer, since a job may need the port */

/* ---- the listening end */

static int port_listen(int port, int *got)
{
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), off = 0;
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in at4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr *address = (struct sockaddr *)&at;
    socklen_t size = sizeof(at);

    if (fd >= 0) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    } else { /* a kernel without IPv6 */
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        address = (struct sockaddr *)&at4;
        size = sizeof(at4);
    }
    if (fd < 0 || bind(fd, address, size) || listen(fd, CALLERS) || getsockname(fd, address, &size)) {
        close_fd(&fd);
        return -1;
    }
    /* sin_port and sin6_port have the same offset */
    *got = ntohs(((struct sockaddr_in *)address)->sin_port);
    return fd;
}

void check_listen_open(const struct check_ports *ports, int fds[2], Ddp__V1__CheckListenResult *out)
{
    int got = 0;

    ddp__v1__check_listen_result__init(out);
    fds[0] = fds[1] = -1;
    for (int port = ports->last; fds[0] < 0 && port >= ports->first && port > 0; port--)
        fds[0] = port_listen(port, &got); /* any free port will do: the range's end is as good as its start */
    if (fds[0] >= 0)
        out->master_port = got;
    fds[1] = port_listen(0, &got);
    if (fds[1] >= 0)
        out->other_port = got;
    if (fds[0] < 0)
        out->problem = (char *)"no port of the node's range is free";
    if (fds[1] < 0)
        out->problem = (char *)"no port can be opened";
}

struct caller {
    int fd;
    size_t key; /* bytes of the key that have arrived */
    uint64_t bytes;
};

static void caller_drop(struct caller *c)
{
    close(c->fd);
    c->fd = -1;
}

/* Reads from a caller once. True: the call is over, and the caller had sent the key. */
static bool caller_serve(struct caller *c, const uint8_t key[CHECK_KEY], char *piece)
{
    ssize_t n = c->key < CHECK_KEY ? read(c->fd, piece, CHECK_KEY - c->key) : read(c->fd, piece, PIECE);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        if (n == 0 && c->key == CHECK_KEY)
            (void)send(c->fd, &c->bytes, sizeof(c->bytes), MSG_NOSIGNAL);
        caller_drop(c);
        return c->key == CHECK_KEY;
    }
    if (c->key == CHECK_KEY) { /* the measurement: only the number of bytes counts */
        c->bytes += (uint64_t)n;
        return false;
    }
    if (memcmp(piece, key + c->key, (size_t)n)) { /* not a check of this round: tell it nothing */
        caller_drop(c);
        return false;
    }
    c->key += (size_t)n;
    if (c->key == CHECK_KEY)
        (void)send(c->fd, "k", 1, MSG_NOSIGNAL);
    return false;
}

static void caller_accept(int listener, struct caller *callers, size_t *count)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    for (size_t i = 0; i < *count; i++)
        if (callers[i].fd < 0) {
            callers[i] = (struct caller){.fd = fd};
            return;
        }
    if (*count == CALLERS) {
        close(fd);
        return;
    }
    callers[(*count)++] = (struct caller){.fd = fd};
}

bool check_listen_serve(const int fds[2], const uint8_t key[CHECK_KEY], int64_t hold_ms, int calls)
{
    struct caller *callers = xcalloc(CALLERS, sizeof(*callers));
    struct pollfd *set = xcalloc(CALLERS + 2, sizeof(*set));
    char *piece = xmalloc(PIECE);
    int64_t last = clock_boot_ms() + hold_ms, end = last, left;
    size_t count = 0;
    int over = 0;

    while ((!calls || over < calls) && (left = end - clock_boot_ms()) > 0) {
        for (size_t i = 0; i < 2; i++)
            set[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
        for (size_t i = 0; i < count; i++)
            set[i + 2] = (struct pollfd){.fd = callers[i].fd, .events = POLLIN};
        if (poll(set, count + 2, (int)left) <= 0)
            continue;
        /* each sign of a caller prolongs the wait, up to hold_ms in all */
        end = clock_boot_ms() + LINGER_MS < last ? clock_boot_ms() + LINGER_MS : last;
        for (size_t i = 0; i < count; i++)
            if (set[i + 2].revents)
                over += caller_serve(&callers[i], key, piece);
        for (size_t i = 0; i < 2; i++)
            if (set[i].revents)
                caller_accept(fds[i], callers, &count);
    }
    free(piece);
    free(set);
    free(callers);
    return calls && over >= calls;
}

/* ---- the calling end */

struct dial {
    Ddp__V1__CheckLink *link;
    int fd;
    int64_t started; /* CLOCK_MONOTONIC, ns */
    bool connected;
};

static void link_set_problem(Ddp__V1__CheckLink *link, const char *problem)
{
    free(link->problem == (char *)protobuf_c_empty_string ? NULL : link->problem);
    link->problem = xstrdup(problem);
}

static const char *connect_error_text(int errnum)
{
    switch (errnum) {
    case ECONNREFUSED:
        return "connection refused: nothing listens at that address, or a firewall rejects it";
    case ETIMEDOUT:
        return "no answer: a firewall drops the packets, or the address belongs to another machine";
    case EHOSTUNREACH:
    case ENETUNREACH:
        return "no route to that address";
    default:
        return strerror(errnum);
    }
}

static void dial_fail(struct dial *d, const char *why)
{
    link_set_problem(d->link, why);
    close_fd(&d->fd);
    d->fd = -1;
}

static int connect_start(const char *address, int port, int *errnum)
{
    struct addrinfo want = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    char service[16];
    int fd = -1;

    snprintf(service, sizeof(service), "%d", port);
    *errnum = EHOSTUNREACH;
    if (getaddrinfo(address, service, &want, &found))
        return -1;
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) && errno != EINPROGRESS) {
        *errnum = errno;
        close_fd(&fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

static void dial_advance(struct dial *d, const uint8_t *key)
{
    int errnum = 0;
    socklen_t size = sizeof(errnum);
    char byte;

    if (!d->connected) {
        if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &errnum, &size) || errnum) {
            dial_fail(d, connect_error_text(errnum));
            return;
        }
        d->connected = true;
        if (send(d->fd, key, CHECK_KEY, MSG_NOSIGNAL) != CHECK_KEY)
            dial_fail(d, "the other side closed the connection");
        return;
    }
    /* Only a check of this round knows the key and answers with this byte. */
    if (read(d->fd, &byte, 1) != 1 || byte != 'k') {
        dial_fail(d, "another program answers at that address");
        return;
    }
    d->link->connect_ms = (double)(clock_mono_ns() - d->started) / 1e6;
    close(d->fd);
    d->fd = -1;
}

static void dials_run(struct dial *dials, size_t count, const uint8_t *key)
{
    struct pollfd *set = xcalloc(count + 1, sizeof(*set));
    int64_t end = clock_boot_ms() + CONNECT_MS, left;

    while ((left = end - clock_boot_ms()) > 0) {
        size_t open = 0;

        for (size_t i = 0; i < count; i++) {
            set[i] = (struct pollfd){.fd = dials[i].fd, .events = dials[i].connected ? POLLIN : POLLOUT};
            open += dials[i].fd >= 0;
        }
        if (!open) /* every dial has succeeded or failed */
            break;
        if (poll(set, count, (int)left) <= 0)
            continue;
        for (size_t i = 0; i < count; i++)
            if (dials[i].fd >= 0 && set[i].revents)
                dial_advance(&dials[i], key);
    }
    for (size_t i = 0; i < count; i++)
        if (dials[i].fd >= 0)
            dial_fail(&dials[i],
                      dials[i].connected ? "connected, but nothing answers" : connect_error_text(ETIMEDOUT));
    free(set);
}

/* Connects and sends the key, for a measurement. Blocks, with a time limit on each step. -1: failed. */
static int connect_blocking(const char *address, int port, const uint8_t *key)
{
    struct timeval limit = {.tv_sec = 2};
    int errnum, fd = connect_start(address, port, &errnum), yes = 1;
    struct pollfd set = {.fd = fd, .events = POLLOUT};
    char byte;

    if (fd < 0)
        return -1;
    if (poll(&set, 1, CONNECT_MS) != 1 || fcntl(fd, F_SETFL, 0) ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) ||
        send(fd, key, CHECK_KEY, MSG_NOSIGNAL) != CHECK_KEY || recv(fd, &byte, 1, 0) != 1) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Returns the bytes per second that the listener has received; 0: the measurement failed. */
static double link_measure(const char *address, int port, const uint8_t *key)
{
    CLEANUP(close_fd) int fd = connect_blocking(address, port, key);
    CLEANUP(free_text) char *piece = xcalloc(1, PIECE);
    int64_t start = clock_mono_ns(), spent;
    uint64_t sent = 0, arrived = 0;

    if (fd < 0)
        return 0;
    while (clock_mono_ns() - start < MEASURE_MS * INT64_C(1000000) && sent < MEASURE_MOST) {
        ssize_t n = send(fd, piece, PIECE, MSG_NOSIGNAL);

        if (n <= 0)
            return 0;
        sent += (uint64_t)n;
    }
    if (shutdown(fd, SHUT_WR) || recv(fd, &arrived, sizeof(arrived), MSG_WAITALL) != sizeof(arrived))
        return 0;
    spent = clock_mono_ns() - start;
    return arrived == sent && spent > 0 ? (double)arrived * 1e9 / (double)spent : 0;
}

static Ddp__V1__CheckLink *link_add(const Ddp__V1__CheckTarget *target, int port)
{
    Ddp__V1__CheckLink *link = xcalloc(1, sizeof(*link));

    ddp__v1__check_link__init(link);
    link->node = target->node; /* borrowed from the ask */
    link->port = port;
    return link;
}

void check_connect(const Ddp__V1__CheckConnect *ask, Ddp__V1__CheckLink ***links, size_t *count)
{
    struct dial *dials = NULL;
    size_t cap = 0, link_cap = 0;
    int errnum;

    *count = 0;
    *links = NULL;
    if (ask->key.len != CHECK_KEY)
        return;
    for (size_t i = 0; i < ask->n_targets; i++)
        for (size_t p = 0; p < ask->targets[i]->n_ports; p++) {
            const Ddp__V1__CheckTarget *t = ask->targets[i];
            struct dial d = {.link = link_add(t, t->ports[p]), .started = clock_mono_ns()};

            d.fd = connect_start(t->address, t->ports[p], &errnum);
            if (d.fd < 0)
                link_set_problem(d.link, connect_error_text(errnum));
            dials = array_grow(dials, *count, &cap, sizeof(*dials));
            dials[*count] = d;
            *links = array_grow(*links, *count, &link_cap, sizeof(Ddp__V1__CheckLink *));
            (*links)[(*count)++] = d.link;
        }
    dials_run(dials, *count, ask->key.data);
    free(dials);
    /* Measured after all dials are over, so that they do not disturb it, and on one port of each target. */
    for (size_t i = 0, at = 0; i < ask->n_targets; at += ask->targets[i++]->n_ports)
        for (size_t p = 0; ask->targets[i]->measure && p < ask->targets[i]->n_ports; p++)
            if (!*(*links)[at + p]->problem) {
                (*links)[at + p]->bytes_per_s =
                    link_measure(ask->targets[i]->address, ask->targets[i]->ports[p], ask->key.data);
                break;
            }
}

void check_links_free(Ddp__V1__CheckLink **links, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(links[i]->problem == (char *)protobuf_c_empty_string ? NULL : links[i]->problem);
        free(links[i]);
    }
    free(links);
}
