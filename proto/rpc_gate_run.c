#include "proto/rpc_gate_run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "proto/rpc_listen.h"

/* The gate's thread. It waits for its sockets, hands connections that have made a request over to gRPC,
 * and checks all of them ten times a second: which may continue, which have timed out, and whether
 * messages to this server lie unread somewhere, because this thread was late, because a port's queue of
 * connections is full, or because gRPC does not get round to reading. That time is reported, since a node
 * must not be declared silent for messages that this server did not read. */

#define EVENTS 256
#define ACCEPTS 256      /* before other sockets get their turn */
#define CHECK_MS 100     /* between two checks */
#define TIMEOUTS_MS 1000 /* between two checks of all connections for timeouts */
#define SILENCE_MS 10000
#define IDLE_MS 120000  /* without a call; the same as gRPC's own limit */
#define PROMPT_MS 500   /* an agent makes its first call this soon after it was greeted */
#define ENDING_MS 10000 /* for a client to read the last bytes */
#define LINGER_MS 200   /* the same, when the gate stops */
#define DROP_LOG_MS 10000
#define UNREAD_MOST_MS 60000 /* after this the connection is at fault, not gRPC */
/* TRIED_MOST: connections that gRPC may have at a time before a call of theirs is admitted. One that is
 * not admitted after GRACE_MS, or was refused, is dropped for another. HANDOVERS_BURST may be handed over
 * at once, HANDOVERS_RATE a second; a connection that is then admitted does not count. */
#define TRIED_MOST 256
#define GRACE_MS 2000
#define HANDOVERS_BURST 1024
#define HANDOVERS_RATE 1000

double relay_handover_cost(const struct rpc_relay *relay)
{
    return relay->listener->tls ? RPC_GATE_HANDOVER_TLS : 1;
}

bool gate_socket_set_events(struct rpc_gate *gate, struct rpc_gate_socket *sock, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = sock};
    const uint32_t had = sock->events;

    if (sock->fd < 0 || had == events)
        return true;
    sock->events = events;
    /* A socket that waits for nothing leaves epoll, which would otherwise report its end over and over. */
    return epoll_ctl(gate->epoll,
                     !events ? EPOLL_CTL_DEL
                     : had   ? EPOLL_CTL_MOD
                             : EPOLL_CTL_ADD,
                     sock->fd, &event) == 0;
}

void gate_log_drop(struct rpc_gate *gate, const struct rpc_relay *relay, const char *why)
{
    const int64_t now = clock_boot_ms();

    gate->unlogged++;
    if (gate->logged_ms && now - gate->logged_ms < DROP_LOG_MS)
        return;
    log_warn("connection_dropped", "peer=%s why=%s dropped=%llu", relay->address, LOG_Q(why),
             (unsigned long long)gate->unlogged);
    gate->logged_ms = now;
    gate->unlogged = 0;
}

static void peer_print(char *out, size_t size, const struct sockaddr_storage *peer)
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)peer;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)peer;
    char text[INET6_ADDRSTRLEN] = "?";

    if (peer->ss_family == AF_INET) {
        inet_ntop(AF_INET, &four->sin_addr, text, sizeof(text));
        snprintf(out, size, "%s:%d", text, ntohs(four->sin_port));
    } else if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
        inet_ntop(AF_INET, six->sin6_addr.s6_addr + 12, text, sizeof(text));
        snprintf(out, size, "%s:%d", text, ntohs(six->sin6_port));
    } else {
        inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof(text));
        snprintf(out, size, "[%s]:%d", text, ntohs(six->sin6_port));
    }
}

/* Under the lock. */
static void gate_note_refusal(struct rpc_gate *gate, const struct sockaddr_storage *peer, const char *why)
{
    const int64_t now = clock_boot_ms();
    char address[64] = "?";

    gate->report.refused++;
    gate->refused_agent = true;
    gate->unlogged_refusals++;
    if (gate->refusal_logged_ms && now - gate->refusal_logged_ms < DROP_LOG_MS)
        return;
    if (peer)
        peer_print(address, sizeof(address), peer);
    log_warn("connection_refused", "peer=%s connections=%zu why=%s refused=%llu", address,
             gate->connections.total, LOG_Q(why), (unsigned long long)gate->unlogged_refusals);
    gate->refusal_logged_ms = now;
    gate->unlogged_refusals = 0;
}

static const char *gate_say_full(const struct rpc_gate *gate)
{
    return gate->connections.total >= gate->connections.limits.total
               ? "all connections are in use: raise LimitNOFILE (ulimit -n), or connections.total if it is set"
               : "all connections of this address are in use: raise connections.per_address";
}

static void gate_evict(struct rpc_gate *gate, struct rpc_connection *connection)
{
    struct rpc_relay *relay = (struct rpc_relay *)connection;

    gate->report.evicted++;
    /* An agent makes its first call as soon as it was greeted. So this connection may have been an agent
     * if its call was not refused yet, or if it was greeted a moment ago. */
    if (connection->stage > RPC_GREETED
            ? !relay->refused
            : connection->stage == RPC_GREETED && clock_boot_ms() - relay->since_ms < PROMPT_MS)
        gate->refused_agent = true;
    gate_log_drop(gate, relay, "too many connections without a token");
    relay_close(relay, true);
}

/* ---- accepting ---- */

static void socket_set_options(int fd, int64_t patience_ms)
{
    const unsigned patience = (unsigned)patience_ms;
    const int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof(patience));
}

static void gate_accept_connection(struct rpc_gate *gate, struct rpc_tcp_listener *listener, int fd,
                                   const struct sockaddr_storage *peer)
{
    const struct rpc_origin origin = rpc_origin_of((const struct sockaddr *)peer);
    struct rpc_connection *victim;
    struct rpc_relay *relay;
    bool full;

    pthread_mutex_lock(&gate->lock);
    gate->report.accepted++;
    /* At a limit another unauthenticated connection is dropped for this one, or this one is refused. */
    victim = rpc_connections_find_victim(&gate->connections, &origin, &full);
    if (full) {
        gate_note_refusal(gate, peer, gate_say_full(gate));
    } else {
        if (victim)
            gate_evict(gate, victim);
        relay = relay_open(gate, listener, fd);
        peer_print(relay->address, sizeof(relay->address), peer);
        relay->since_ms = clock_boot_ms();
        rpc_connections_add(&gate->connections, &relay->connection, &origin);
        socket_set_options(fd, 2 * SILENCE_MS);
        if (!gate_socket_set_events(gate, &relay->tcp, EPOLLIN))
            relay_close(relay, true);
        fd = -1;
    }
    pthread_mutex_unlock(&gate->lock);
    close_fd(&fd);
}

/* Out of descriptors: epoll would report the waiting connection without end. So the spare descriptor is
 * closed for a moment to accept the connection and close it. */
static void gate_refuse_connection(struct rpc_gate *gate, int listener, bool of_system)
{
    int fd;

    close_fd(&gate->spare_fd);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    close_fd(&fd);
    gate->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pthread_mutex_lock(&gate->lock);
    gate_note_refusal(gate, NULL, rpc_no_descriptors(of_system));
    pthread_mutex_unlock(&gate->lock);
}

static void tcp_listener_accept(struct rpc_gate *gate, const struct rpc_gate_socket *sock)
{
    for (int i = 0; i < ACCEPTS && sock->fd >= 0; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t size = sizeof(peer);
        const int fd = accept4(sock->fd, (struct sockaddr *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0)
            gate_accept_connection(gate, sock->owner, fd, &peer);
        else if (errno == EMFILE || errno == ENFILE)
            gate_refuse_connection(gate, sock->fd, errno == ENFILE);
        else if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

/* ---- a connection's turn ---- */

static void relay_end(struct rpc_relay *relay, bool reset)
{
    pthread_mutex_lock(&relay->gate->lock);
    relay_close(relay, reset);
    pthread_mutex_unlock(&relay->gate->lock);
}

static void relay_begin(struct rpc_relay *relay)
{
    struct rpc_gate *gate = relay->gate;
    enum rpc_stage stage;

    /* It hung up, or it speaks another protocol. */
    if (!relay_read_first(relay, &stage)) {
        relay_end(relay, false);
        return;
    }
    if (stage == relay->connection.stage)
        return;
    /* Bytes behind the first request stay in the kernel until gRPC takes the connection. */
    if (stage == RPC_SPOKEN)
        gate_socket_set_events(gate, &relay->tcp, 0);
    pthread_mutex_lock(&gate->lock);
    rpc_connections_move(&gate->connections, &relay->connection, stage);
    pthread_mutex_unlock(&gate->lock);
}

static void relay_handle_events(struct rpc_relay *relay, const struct rpc_gate_socket *sock, uint32_t events,
                                int64_t now)
{
    const bool in = events & (EPOLLIN | EPOLLHUP | EPOLLERR), out = events & EPOLLOUT;
    const bool client = sock->kind == RPC_SOCKET_TCP;

    if (relay->is_closed)
        return;
    if (sock->kind == RPC_SOCKET_TCP && (events & (EPOLLHUP | EPOLLERR)))
        relay_end(relay, false); /* the client is gone and cannot read an answer */
    else if (relay->back.fd < 0)
        relay_begin(relay);
    else if (!relay_carry(relay, client ? in : out, client ? out : in, now))
        relay_end(relay, !relay->down.eof);
}

/* ---- handing over ---- */

static void gate_refill_handovers(struct rpc_gate *gate, int64_t now)
{
    gate->handovers += (double)(now - gate->filled_ms) * HANDOVERS_RATE / 1000;
    gate->filled_ms = now;
    if (gate->handovers > HANDOVERS_BURST)
        gate->handovers = HANDOVERS_BURST;
}

/* Makes room among the connections that gRPC has and that are not admitted yet. */
static bool gate_make_tried_room(struct rpc_gate *gate, int64_t now)
{
    struct rpc_connection *first;

    if (gate->connections.count[RPC_TRIED] < TRIED_MOST)
        return true;
    first = rpc_connections_first_of_largest(&gate->connections, RPC_TRIED);
    const struct rpc_relay *relay = (const struct rpc_relay *)first;
    /* Its first call may still be on the way through gRPC. */
    if (!relay->refused && now - relay->since_ms < GRACE_MS)
        return false;
    gate_evict(gate, first);
    return true;
}

/* Under the lock. */
static struct rpc_relay *gate_hand_over_next(struct rpc_gate *gate, int64_t now)
{
    struct rpc_relay *relay;

    if (gate->handovers < 1 || gate->connections.count[RPC_SPOKEN] == 0 || !gate_make_tried_room(gate, now))
        return NULL;
    relay = (struct rpc_relay *)rpc_connections_next_to_hand_over(&gate->connections);
    const enum relay_handover handover = relay_hand_over(relay, now);
    if (handover == RELAY_LATER)
        return NULL;
    if (handover == RELAY_FAILED) {
        gate_log_drop(gate, relay, "cannot connect to gRPC's unix socket");
        relay_close(relay, true);
        return relay;
    }
    gate->handovers -= relay_handover_cost(relay);
    rpc_connections_move(&gate->connections, &relay->connection, RPC_TRIED);
    return relay;
}

static void gate_hand_over(struct rpc_gate *gate, int64_t now)
{
    struct rpc_relay *relay;

    do {
        pthread_mutex_lock(&gate->lock);
        gate_refill_handovers(gate, now);
        relay = gate_hand_over_next(gate, now);
        pthread_mutex_unlock(&gate->lock);
        if (relay && !relay->is_closed && !relay_carry(relay, true, true, now))
            relay_end(relay, true);
    } while (relay);
}

/* ---- the periodic check ---- */

/* True if the kernel's queue of connections is full. It drops the connections that come then, and their
 * clients try again much later. */
static bool tcp_listener_overflows(const struct rpc_tcp_listener *listener)
{
    struct tcp_info info;

    for (size_t i = 0; i < listener->socket_count; i++) {
        socklen_t size = sizeof(info);
        /* For a listening socket tcpi_unacked is the length of its queue and tcpi_sacked the limit. */
        if (listener->sockets[i].fd >= 0 &&
            getsockopt(listener->sockets[i].fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
            info.tcpi_sacked && info.tcpi_unacked >= info.tcpi_sacked)
            return true;
    }
    return false;
}

static bool gate_check_unread(struct rpc_gate *gate, int64_t now)
{
    bool unread = false;

    for (struct rpc_relay *relay = gate->tracked, *next; relay; relay = next) {
        next = relay->tracked_next;
        if (relay->up.len && relay->back.fd >= 0 && !relay_carry(relay, true, false, now)) {
            relay_end(relay, true);
            continue;
        }
        if (relay_is_unread(relay, now) && atomic_load(&relay->admitted) &&
            now - relay->unread_ms < UNREAD_MOST_MS)
            unread = true;
    }
    return unread;
}

static void gate_check_timeouts(struct rpc_gate *gate, int64_t now)
{
    /* Connections that gRPC has are timed out by gRPC, but for one that gRPC has closed. */
    for (struct rpc_relay *relay = gate->relays, *next; relay; relay = next) {
        const enum rpc_stage stage = relay->connection.stage;
        next = relay->next;
        if ((stage == RPC_SILENT && now - relay->since_ms > SILENCE_MS) ||
            (stage == RPC_GREETED && now - relay->since_ms > IDLE_MS)) {
            gate->report.silent++;
            relay_close(relay, true);
        } else if (relay->ending_ms && now - relay->ending_ms > ENDING_MS) {
            relay_close(relay, true);
        }
    }
    gate->timeouts_ms = now;
}

static void gate_check(struct rpc_gate *gate, int64_t now)
{
    const bool unread = gate_check_unread(gate, now);

    pthread_mutex_lock(&gate->lock);
    const int64_t passed = now - gate->checked_ms;
    for (const struct rpc_tcp_listener *listener = gate->listeners; listener; listener = listener->next)
        gate->refused_agent |= tcp_listener_overflows(listener);
    /* Late: this thread did not run. Unread: gRPC did not read. Both times an agent may have been heard too
     * late; with refused_agent it may not have been able to connect. */
    if (passed > RPC_GATE_LATE_MS || unread)
        gate->report.deaf_ms += passed;
    else if (gate->refused_agent)
        gate->report.shut_ms += passed;
    gate->refused_agent = false;
    gate->checked_ms = now;
    if (now - gate->timeouts_ms >= TIMEOUTS_MS)
        gate_check_timeouts(gate, now);
    pthread_mutex_unlock(&gate->lock);
}

/* ---- the end ---- */

static void tcp_listeners_close(struct rpc_gate *gate)
{
    gate->listeners_closed = true;
    for (struct rpc_tcp_listener *listener = gate->listeners; listener; listener = listener->next)
        for (size_t i = 0; i < listener->socket_count; i++)
            close_fd(&listener->sockets[i].fd);
    pthread_mutex_lock(&gate->lock);
    for (struct rpc_relay *relay = gate->relays, *next; relay; relay = next) {
        next = relay->next;
        if (relay->back.fd < 0) /* gRPC does not have it, so nobody will answer it */
            relay_close(relay, true);
    }
    pthread_mutex_unlock(&gate->lock);
}

static bool gate_over(struct rpc_gate *gate, int64_t now)
{
    if (atomic_load(&gate->shut) && !gate->listeners_closed)
        tcp_listeners_close(gate);
    if (!atomic_load(&gate->stop))
        return false;
    if (!gate->stop_ms)
        gate->stop_ms = now;
    return !gate->relays || now - gate->stop_ms > LINGER_MS;
}

static void gate_free_closed(struct rpc_gate *gate)
{
    while (gate->closed) {
        struct rpc_relay *relay = gate->closed;
        gate->closed = relay->next;
        relay_free(relay);
    }
}

static void gate_handle_events(struct rpc_gate *gate, const struct epoll_event *events, int count,
                               int64_t now)
{
    for (int i = 0; i < count; i++) {
        const struct rpc_gate_socket *sock = events[i].data.ptr;
        uint64_t sink;

        if (sock->kind == RPC_SOCKET_LISTENER)
            tcp_listener_accept(gate, sock);
        else if (sock->kind == RPC_SOCKET_WAKE)
            BUG_ON(read(sock->fd, &sink, sizeof(sink)) < 0 && errno != EAGAIN);
        else
            relay_handle_events(sock->owner, sock, events[i].events, now);
    }
}

void *gate_run(void *user)
{
    struct rpc_gate *gate = user;
    struct epoll_event events[EVENTS];
    int64_t now = clock_boot_ms();

    gate->filled_ms = gate->timeouts_ms = now;
    while (!gate_over(gate, now)) {
        const int64_t wait = gate->checked_ms + CHECK_MS - now;
        const int count = epoll_wait(gate->epoll, events, EVENTS, wait > 0 ? (int)wait : 0);

        BUG_ON(count < 0 && errno != EINTR);
        now = clock_boot_ms();
        gate_handle_events(gate, events, count, now);
        gate_hand_over(gate, now);
        if (now - gate->checked_ms >= CHECK_MS)
            gate_check(gate, now);
        gate_free_closed(gate);
    }
    /* The server has drained: what is left had LINGER_MS to read its last bytes. */
    pthread_mutex_lock(&gate->lock);
    while (gate->relays)
        relay_close(gate->relays, false);
    pthread_mutex_unlock(&gate->lock);
    gate_free_closed(gate);
    return NULL;
}
