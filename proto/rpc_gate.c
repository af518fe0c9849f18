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
#include "base/id.h"
#include "base/mem.h"
#include "proto/rpc_address.h"
#include "proto/rpc_gate_impl.h"

#define BACKLOG 4096
#define DESCRIPTORS_KEPT 256 /* for everything else that the process opens */
#define DESCRIPTORS_EACH 3   /* the client's, and both ends of the way to gRPC */
#define TOTAL_LEAST 16
#define STRANGERS 2048

static size_t limit_or(size_t wanted, size_t otherwise)
{
    return wanted ? wanted : otherwise;
}

static struct rpc_limits limits_settle(const struct rpc_limits *wanted)
{
    struct rlimit files = {.rlim_cur = 1024};
    struct rpc_limits limits;
    size_t total = TOTAL_LEAST;

    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur > DESCRIPTORS_KEPT + TOTAL_LEAST * DESCRIPTORS_EACH)
        total = (files.rlim_cur - DESCRIPTORS_KEPT) / DESCRIPTORS_EACH;
    /* more than there are descriptors for would refuse agents, not strangers */
    limits.total = wanted->total && wanted->total < total ? wanted->total : total;
    limits.per_address = limit_or(wanted->per_address, limits.total);
    limits.strangers = limits.total / 3 < STRANGERS ? limits.total / 3 : STRANGERS;
    limits.strangers = limit_or(wanted->strangers, limits.strangers);
    limits.strangers_per_address = limit_or(wanted->strangers_per_address, (limits.strangers + 1) / 2);
    return limits;
}

static enum err_code dir_settle(struct rpc_gate *gate, const char *dir, struct err *e)
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
    const struct rpc_limits settled = limits_settle(limits);
    uint64_t random[2];

    id_random(random, sizeof(random));
    pthread_mutex_init(&gate->lock, NULL);
    rpc_guests_init(&gate->guests, &settled, random[0]);
    snprintf(gate->prefix, sizeof(gate->prefix), "ddp-%016llx-", (unsigned long long)random[1]);
    gate->handovers = 1;
    gate->scratch = xmalloc(RPC_GATE_SCRATCH);
    gate->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    gate->epoll = epoll_create1(EPOLL_CLOEXEC);
    gate->wake = (struct rpc_end){.kind = RPC_END_WAKE, .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    if (gate->spare_fd < 0 || gate->epoll < 0 || gate->wake.fd < 0)
        err_sys(e, errno, "descriptors for the connections");
    else if (dir_settle(gate, dir, e) == ERR_OK) {
        end_set(gate, &gate->wake, EPOLLIN);
        *out = gate;
        return ERR_OK;
    }
    rpc_gate_free(gate);
    return e->code;
}

/* ---- listening ---- */

static void port_set(struct sockaddr *address, int port)
{
    if (address->sa_family == AF_INET)
        ((struct sockaddr_in *)address)->sin_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in6 *)address)->sin6_port = htons((uint16_t)port);
}

static int port_get(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof(address);

    getsockname(fd, (struct sockaddr *)&address, &size);
    return ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                              : ((struct sockaddr_in6 *)&address)->sin6_port);
}

/* 0, or why not. */
static int end_listen(struct rpc_end *end, const struct addrinfo *a, int port)
{
    CLEANUP(close_fd)
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    struct sockaddr_storage address = {0};
    const int one = 1, zero = 0;

    memcpy(&address, a->ai_addr, a->ai_addrlen);
    port_set((struct sockaddr *)&address, port);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
        (a->ai_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero))) ||
        bind(fd, (const struct sockaddr *)&address, a->ai_addrlen) || listen(fd, BACKLOG))
        return errno;
    end->fd = fd;
    fd = -1;
    return 0;
}

/* A name may stand for addresses that this machine has not; one of them is enough, but for a port that is
 * taken. */
static enum err_code door_listen(struct rpc_door *door, const struct addrinfo *found, int *port,
                                 const char *text, struct err *e)
{
    int reason = 0;

    for (const struct addrinfo *a = found; a && door->end_count < ARRAY_LEN(door->ends); a = a->ai_next) {
        struct rpc_end *end = &door->ends[door->end_count];

        *end = (struct rpc_end){.kind = RPC_END_LISTENER, .fd = -1, .owner = door};
        reason = end_listen(end, a, *port);
        if (reason == EADDRINUSE)
            return err_sys(e, reason, "listen on %s", text);
        if (reason)
            continue;
        *port = port_get(end->fd);
        door->end_count++;
    }
    return door->end_count ? ERR_OK : err_sys(e, reason, "listen on %s", text);
}

static void door_free(struct rpc_door *door)
{
    for (size_t i = 0; i < ARRAY_LEN(door->ends); i++)
        close_fd(&door->ends[i].fd);
    if (door->path)
        unlink(door->path);
    free(door->path);
    free(door);
}

static struct rpc_door *door_create(bool tls)
{
    struct rpc_door *door = xcalloc(1, sizeof(*door));

    door->tls = tls;
    for (size_t i = 0; i < ARRAY_LEN(door->ends); i++)
        door->ends[i].fd = -1;
    return door;
}

static enum err_code door_open(struct rpc_gate *gate, struct rpc_door *door, const char *text, int *port,
                               struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found;
    const struct rpc_door *last = gate->doors;
    struct rpc_address address;
    char service[16];

    if (rpc_address_parse(text, &address, e))
        return e->code;
    if (address.path)
        return err_set(e, ERR_INVALID_ARGUMENT, "'%s' is not a TCP address", text);
    door->order = last ? last->order + 1 : 0;
    door->path = xasprintf("%s/gate-%d.sock", gate->dir, door->order);
    if (strlen(door->path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return err_set(e, ERR_INVALID_ARGUMENT, "'%s': a unix socket wants a path below 108 bytes",
                       door->path);
    snprintf(service, sizeof(service), "%d", address.port);
    const int failed = getaddrinfo(address.host, service, &hints, &found);
    if (failed)
        return err_set(e, ERR_INVALID_ARGUMENT, "listen on %s: %s", text, gai_strerror(failed));
    *port = address.port;
    const enum err_code code = door_listen(door, found, port, text, e);
    freeaddrinfo(found);
    return code;
}

enum err_code rpc_gate_listen(struct rpc_gate *gate, const char *address, bool tls, int *port,
                              const char **path, struct err *e)
{
    struct rpc_door *door = door_create(tls);
    int bound = 0;

    BUG_ON(gate->started);
    if (door_open(gate, door, address, &bound, e) != ERR_OK) {
        door_free(door);
        return e->code;
    }
    for (size_t i = 0; i < door->end_count; i++)
        end_set(gate, &door->ends[i], EPOLLIN);
    door->next = gate->doors;
    gate->doors = door;
    *port = bound;
    *path = door->path;
    return ERR_OK;
}

/* ---- life ---- */

void rpc_gate_start(struct rpc_gate *gate)
{
    sigset_t all, old;
    int failed;

    gate->looked_ms = clock_boot_ms();
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
    for (const struct rpc_door *door = gate->doors; door; door = door->next)
        for (size_t i = 0; i < door->end_count; i++)
            shutdown(door->ends[i].fd, SHUT_RD); /* refuses from now on; the thread closes it */
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
    while (gate->doors) {
        struct rpc_door *door = gate->doors;
        gate->doors = door->next;
        door_free(door);
    }
    if (gate->own_dir)
        rmdir(gate->dir);
    free(gate->dir);
    rpc_guests_release(&gate->guests);
    close_fd(&gate->spare_fd);
    close_fd(&gate->epoll);
    close_fd(&gate->wake.fd);
    pthread_mutex_destroy(&gate->lock);
    free(gate->scratch);
    free(gate);
}

/* ---- what the server asks ---- */

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

void rpc_gate_judged(struct rpc_gate *gate, uint64_t number, bool admitted)
{
    bool news = false;

    pthread_mutex_lock(&gate->lock);
    struct rpc_relay *relay = gate->table[number & (RPC_GATE_TABLE - 1)];
    while (relay && relay->number != number)
        relay = relay->chain;
    if (relay && relay->guest.stage == RPC_TRIED) {
        news = admitted || !relay->refused;
        relay->refused = !admitted;
        if (admitted) {
            atomic_store(&relay->admitted, true);
            rpc_guests_move(&gate->guests, &relay->guest, RPC_ADMITTED);
            gate->handovers += relay_cost(relay);
        } else {
            rpc_guests_put_first(&gate->guests, &relay->guest);
        }
    }
    pthread_mutex_unlock(&gate->lock);
    if (news)
        gate_wake(gate); /* it may go on, or make room */
}

void rpc_gate_look(struct rpc_gate *gate, struct rpc_traffic *out)
{
    const int64_t now = clock_boot_ms();

    pthread_mutex_lock(&gate->lock);
    *out = gate->report;
    out->connections = gate->guests.total;
    out->strangers = rpc_guests_strangers(&gate->guests);
    gate->report.deaf_ms = gate->report.shut_ms = 0;
    if (gate->started && now - gate->looked_ms > RPC_GATE_LATE_MS) { /* it does not run right now */
        out->deaf_ms += now - gate->looked_ms;
        gate->looked_ms = now;
    }
    pthread_mutex_unlock(&gate->lock);
}
