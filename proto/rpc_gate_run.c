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
#include "proto/rpc_gate_impl.h"

/* The gate's thread. It waits for its sockets, hands over those that have spoken, and ten times a second
 * looks around: who may go on, who has had his time, and whether words for us lie somewhere unread: because
 * this thread was late, because a port's queue of connections is full, or because gRPC does not get round to
 * reading. Whoever judges a silence must know that. */

#define EVENTS 256
#define ACCEPTS 256  /* before the others have their turn */
#define LOOK_MS 100  /* between two looks around */
#define WALK_MS 1000 /* between two walks over all connections */
#define SILENCE_MS 10000
#define IDLE_MS 120000 /* without a call; gRPC's own limit, too */
#define PROMPT_MS 500
#define ENDING_MS 10000 /* for a client to take the last bytes */
#define LINGER_MS 200   /* the same, when the gate goes down */
#define SAY_MS 10000
#define UNREAD_MOST_MS 60000 /* longer is that connection's own matter */
/* At once in gRPC's hands and not yet admitted; one that is not admitted after GRACE_MS, or was refused,
 * makes room. So many may be handed over at once, and again a second; those that are admitted do not count.
 */
#define TRIED_MOST 256
#define GRACE_MS 2000
#define HANDOVERS_BURST 1024
#define HANDOVERS_RATE 1000

double relay_cost(const struct rpc_relay *relay)
{
    return relay->door->tls ? RPC_GATE_HANDOVER_TLS : 1;
}

bool end_set(struct rpc_gate *gate, struct rpc_end *end, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = end};
    const uint32_t had = end->events;

    if (end->fd < 0 || had == events)
        return true;
    end->events = events;
    /* one that waits for nothing leaves: epoll would report its end over and over */
    return epoll_ctl(gate->epoll,
                     !events ? EPOLL_CTL_DEL
                     : had   ? EPOLL_CTL_MOD
                             : EPOLL_CTL_ADD,
                     end->fd, &event) == 0;
}

void gate_say(struct rpc_gate *gate, const struct rpc_relay *relay, const char *why)
{
    const int64_t now = clock_boot_ms();

    gate->unsaid++;
    if (gate->said_ms && now - gate->said_ms < SAY_MS)
        return;
    log_warn("connection_dropped", "peer=%s why=%s dropped=%llu", relay->address, LOG_Q(why),
             (unsigned long long)gate->unsaid);
    gate->said_ms = now;
    gate->unsaid = 0;
}

static void gate_evict(struct rpc_gate *gate, struct rpc_guest *guest)
{
    struct rpc_relay *relay = (struct rpc_relay *)guest;

    gate->report.evicted++;
    /* it might have been an agent, which asks as soon as it was answered */
    if (guest->stage > RPC_GREETED
            ? !relay->refused
            : guest->stage == RPC_GREETED && clock_boot_ms() - relay->since_ms < PROMPT_MS)
        gate->door_shut = true;
    gate_say(gate, relay, "too many connections without a token");
    relay_close(relay, true);
}

/* ---- accepting ---- */

static void print_peer(char *out, size_t size, const struct sockaddr_storage *peer)
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

static void fd_prepare(int fd, int64_t patience_ms)
{
    const unsigned patience = (unsigned)patience_ms;
    const int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof(patience));
}

static void guest_receive(struct rpc_gate *gate, struct rpc_door *door, int fd,
                          const struct sockaddr_storage *peer)
{
    const struct rpc_origin origin = rpc_origin_of((const struct sockaddr *)peer);
    struct rpc_guest *victim;
    struct rpc_relay *relay;
    bool full;

    pthread_mutex_lock(&gate->lock);
    gate->report.accepted++;
    victim = rpc_guests_in_the_way(&gate->guests, &origin, &full);
    if (full) {
        gate->report.refused++;
        gate->door_shut = true;
    } else {
        if (victim)
            gate_evict(gate, victim);
        relay = relay_open(gate, door, fd);
        print_peer(relay->address, sizeof(relay->address), peer);
        relay->since_ms = clock_boot_ms();
        rpc_guests_add(&gate->guests, &relay->guest, &origin);
        fd_prepare(fd, 2 * SILENCE_MS);
        if (!end_set(gate, &relay->tcp, EPOLLIN))
            relay_close(relay, true);
        fd = -1;
    }
    pthread_mutex_unlock(&gate->lock);
    close_fd(&fd);
}

/* Out of descriptors: the spare one is given up for a moment to take the connection and close it, or the
 * thread would spin on it. */
static void guest_turn_away(struct rpc_gate *gate, int listener)
{
    int fd;

    close_fd(&gate->spare_fd);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    close_fd(&fd);
    gate->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pthread_mutex_lock(&gate->lock);
    gate->report.refused++;
    gate->door_shut = true;
    pthread_mutex_unlock(&gate->lock);
}

static void door_accept(struct rpc_gate *gate, const struct rpc_end *end)
{
    for (int i = 0; i < ACCEPTS && end->fd >= 0; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t size = sizeof(peer);
        const int fd = accept4(end->fd, (struct sockaddr *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0)
            guest_receive(gate, end->owner, fd, &peer);
        else if (errno == EMFILE || errno == ENFILE)
            guest_turn_away(gate, end->fd);
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

static void relay_first(struct rpc_relay *relay)
{
    struct rpc_gate *gate = relay->gate;
    enum rpc_stage stage;

    if (!relay_listen(relay, &stage)) {
        relay_end(relay, false);
        return;
    }
    if (stage == relay->guest.stage)
        return;
    if (stage == RPC_SPOKEN)
        end_set(gate, &relay->tcp, 0);
    pthread_mutex_lock(&gate->lock);
    rpc_guests_move(&gate->guests, &relay->guest, stage);
    pthread_mutex_unlock(&gate->lock);
}

static void relay_turn(struct rpc_relay *relay, const struct rpc_end *end, uint32_t events, int64_t now)
{
    const bool in = events & (EPOLLIN | EPOLLHUP | EPOLLERR), out = events & EPOLLOUT;
    const bool client = end->kind == RPC_END_TCP;

    if (relay->is_dead)
        return;
    if (end->kind == RPC_END_TCP && (events & (EPOLLHUP | EPOLLERR)))
        relay_end(relay, false); /* nobody is there any more to read an answer */
    else if (relay->back.fd < 0)
        relay_first(relay);
    else if (!relay_carry(relay, client ? in : out, client ? out : in, now))
        relay_end(relay, !relay->down.eof);
}

/* ---- handing over ---- */

static void handovers_fill(struct rpc_gate *gate, int64_t now)
{
    gate->handovers += (double)(now - gate->filled_ms) * HANDOVERS_RATE / 1000;
    gate->filled_ms = now;
    if (gate->handovers > HANDOVERS_BURST)
        gate->handovers = HANDOVERS_BURST;
}

/* Room among those that gRPC has and that were not admitted yet. */
static bool tried_make_room(struct rpc_gate *gate, int64_t now)
{
    struct rpc_guest *first;

    if (gate->guests.count[RPC_TRIED] < TRIED_MOST)
        return true;
    first = rpc_guests_first_of_most(&gate->guests, RPC_TRIED);
    const struct rpc_relay *relay = (const struct rpc_relay *)first;
    if (!relay->refused && now - relay->since_ms < GRACE_MS)
        return false;
    gate_evict(gate, first);
    return true;
}

/* Under the lock. */
static struct rpc_relay *relay_next(struct rpc_gate *gate, int64_t now)
{
    struct rpc_relay *relay;

    if (gate->handovers < 1 || gate->guests.count[RPC_SPOKEN] == 0 || !tried_make_room(gate, now))
        return NULL;
    relay = (struct rpc_relay *)rpc_guests_next(&gate->guests);
    const enum relay_handed handed = relay_hand(relay, now);
    if (handed == RELAY_LATER)
        return NULL;
    if (handed == RELAY_FAILED) {
        gate_say(gate, relay, "no way to gRPC");
        relay_close(relay, true);
        return relay;
    }
    gate->handovers -= relay_cost(relay);
    rpc_guests_move(&gate->guests, &relay->guest, RPC_TRIED);
    return relay;
}

static void gate_hand_over(struct rpc_gate *gate, int64_t now)
{
    struct rpc_relay *relay;

    do {
        pthread_mutex_lock(&gate->lock);
        handovers_fill(gate, now);
        relay = relay_next(gate, now);
        pthread_mutex_unlock(&gate->lock);
        if (relay && !relay->is_dead && !relay_carry(relay, true, true, now))
            relay_end(relay, true);
    } while (relay);
}

/* ---- looking around ---- */

/* Connections that wait in the kernel because there is no more room for them are dialled again by their
 * clients much later. */
static bool door_overflows(const struct rpc_door *door)
{
    struct tcp_info info;

    for (size_t i = 0; i < door->end_count; i++) {
        socklen_t size = sizeof(info);
        /* of a listening socket: how many wait to be accepted, and how many may */
        if (door->ends[i].fd >= 0 && getsockopt(door->ends[i].fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
            info.tcpi_sacked && info.tcpi_unacked >= info.tcpi_sacked)
            return true;
    }
    return false;
}

static bool watched_look(struct rpc_gate *gate, int64_t now)
{
    bool unread = false;

    for (struct rpc_relay *relay = gate->watched, *next; relay; relay = next) {
        next = relay->watch_next;
        if (relay->up.len && relay->back.fd >= 0 && !relay_carry(relay, true, false, now)) {
            relay_end(relay, true);
            continue;
        }
        if (relay_watch_more(relay, now) && atomic_load(&relay->admitted) &&
            now - relay->unread_ms < UNREAD_MOST_MS)
            unread = true;
    }
    return unread;
}

static void gate_walk(struct rpc_gate *gate, int64_t now)
{
    for (struct rpc_relay *relay = gate->relays, *next; relay; relay = next) {
        const enum rpc_stage stage = relay->guest.stage;
        next = relay->next;
        if ((stage == RPC_SILENT && now - relay->since_ms > SILENCE_MS) ||
            (stage == RPC_GREETED && now - relay->since_ms > IDLE_MS)) {
            gate->report.silent++;
            relay_close(relay, true);
        } else if (relay->ending_ms && now - relay->ending_ms > ENDING_MS) {
            relay_close(relay, true);
        }
    }
    gate->walked_ms = now;
}

static void gate_look(struct rpc_gate *gate, int64_t now)
{
    const bool unread = watched_look(gate, now);

    pthread_mutex_lock(&gate->lock);
    const int64_t passed = now - gate->looked_ms;
    for (const struct rpc_door *door = gate->doors; door; door = door->next)
        gate->door_shut |= door_overflows(door);
    if (passed > RPC_GATE_LATE_MS || unread)
        gate->report.deaf_ms += passed;
    else if (gate->door_shut)
        gate->report.shut_ms += passed;
    gate->door_shut = false;
    gate->looked_ms = now;
    if (now - gate->walked_ms >= WALK_MS)
        gate_walk(gate, now);
    pthread_mutex_unlock(&gate->lock);
}

/* ---- the end ---- */

static void doors_close(struct rpc_gate *gate)
{
    gate->doors_closed = true;
    for (struct rpc_door *door = gate->doors; door; door = door->next)
        for (size_t i = 0; i < door->end_count; i++)
            close_fd(&door->ends[i].fd);
    pthread_mutex_lock(&gate->lock);
    for (struct rpc_relay *relay = gate->relays, *next; relay; relay = next) {
        next = relay->next;
        if (relay->back.fd < 0)
            relay_close(relay, true);
    }
    pthread_mutex_unlock(&gate->lock);
}

static bool gate_over(struct rpc_gate *gate, int64_t now)
{
    if (atomic_load(&gate->shut) && !gate->doors_closed)
        doors_close(gate);
    if (!atomic_load(&gate->stop))
        return false;
    if (!gate->stop_ms)
        gate->stop_ms = now;
    return !gate->relays || now - gate->stop_ms > LINGER_MS;
}

static void dead_bury(struct rpc_gate *gate)
{
    while (gate->dead) {
        struct rpc_relay *relay = gate->dead;
        gate->dead = relay->next;
        relay_free(relay);
    }
}

static void gate_turn(struct rpc_gate *gate, const struct epoll_event *events, int count, int64_t now)
{
    for (int i = 0; i < count; i++) {
        const struct rpc_end *end = events[i].data.ptr;
        uint64_t sink;

        if (end->kind == RPC_END_LISTENER)
            door_accept(gate, end);
        else if (end->kind == RPC_END_WAKE)
            BUG_ON(read(end->fd, &sink, sizeof(sink)) < 0 && errno != EAGAIN);
        else
            relay_turn(end->owner, end, events[i].events, now);
    }
}

void *gate_run(void *user)
{
    struct rpc_gate *gate = user;
    struct epoll_event events[EVENTS];
    int64_t now = clock_boot_ms();

    gate->filled_ms = gate->walked_ms = now;
    while (!gate_over(gate, now)) {
        const int64_t wait = gate->looked_ms + LOOK_MS - now;
        const int count = epoll_wait(gate->epoll, events, EVENTS, wait > 0 ? (int)wait : 0);

        BUG_ON(count < 0 && errno != EINTR);
        now = clock_boot_ms();
        gate_turn(gate, events, count, now);
        gate_hand_over(gate, now);
        if (now - gate->looked_ms >= LOOK_MS)
            gate_look(gate, now);
        dead_bury(gate);
    }
    pthread_mutex_lock(&gate->lock);
    while (gate->relays)
        relay_close(gate->relays, false);
    pthread_mutex_unlock(&gate->lock);
    dead_bury(gate);
    return NULL;
}
