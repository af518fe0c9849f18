#include "proto/rpc_relay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "base/err.h"
#include "base/mem.h"
#include "proto/rpc_gate_run.h"

/* One connection, from its first bytes on. The relay reads only bytes that it can forward. So a side that does not
 * read stops the other side, and at most one piece in each direction is in memory. */

#define FIRST_BYTES 1024
#define TURNS 4 /* pieces in each direction before other connections get their turn */

static struct rpc_relay **relay_slot(struct rpc_gate *gate, uint64_t number)
{
    return &gate->table[number & (RPC_GATE_TABLE - 1)];
}

struct rpc_relay *relay_open(struct rpc_gate *gate, struct rpc_tcp_listener *listener, int fd)
{
    struct rpc_relay *relay = xcalloc(1, sizeof(*relay)), **slot;

    relay->gate = gate;
    relay->listener = listener;
    relay->number = ++gate->last_number;
    relay->tcp = (struct rpc_gate_socket){.kind = RPC_SOCKET_TCP, .fd = fd, .owner = relay};
    relay->back = (struct rpc_gate_socket){.kind = RPC_SOCKET_BACK, .fd = -1, .owner = relay};
    relay->next = gate->relays;
    if (relay->next)
        relay->next->prev = relay;
    gate->relays = relay;
    slot = relay_slot(gate, relay->number);
    relay->chain = *slot;
    *slot = relay;
    return relay;
}

void relay_track_unread(struct rpc_relay *relay, bool wanted)
{
    struct rpc_gate *gate = relay->gate;

    if (relay->tracked == wanted)
        return;
    relay->tracked = wanted;
    if (wanted) {
        relay->tracked_prev = NULL;
        relay->tracked_next = gate->tracked;
        if (gate->tracked)
            gate->tracked->tracked_prev = relay;
        gate->tracked = relay;
        return;
    }
    if (relay->tracked_next)
        relay->tracked_next->tracked_prev = relay->tracked_prev;
    if (relay->tracked_prev)
        relay->tracked_prev->tracked_next = relay->tracked_next;
    else
        gate->tracked = relay->tracked_next;
}

/* A process that was forked and has not yet called exec holds a copy of the descriptor. Until it does, the
 * kernel keeps the entry of a closed descriptor and reports events for it, and its data is a relay that
 * may be freed by then. So the entry is removed before the descriptor is closed. */
static void gate_socket_close(struct rpc_gate *gate, struct rpc_gate_socket *sock)
{
    if (sock->fd >= 0)
        epoll_ctl(gate->epoll, EPOLL_CTL_DEL, sock->fd, NULL);
    close_fd(&sock->fd);
}

void relay_close(struct rpc_relay *relay, bool reset)
{
    struct rpc_gate *gate = relay->gate;
    struct rpc_relay **slot = relay_slot(gate, relay->number);
    const struct linger at_once = {.l_onoff = 1};

    if (relay->is_closed)
        return;
    relay->is_closed = true;
    if (reset) /* the kernel sends RST and keeps nothing of the connection */
        setsockopt(relay->tcp.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    gate_socket_close(gate, &relay->tcp);
    gate_socket_close(gate, &relay->back);
    relay_track_unread(relay, false);
    rpc_connections_remove(&gate->connections, &relay->connection);
    while (*slot != relay)
        slot = &(*slot)->chain;
    *slot = relay->chain;
    if (relay->next)
        relay->next->prev = relay->prev;
    if (relay->prev)
        relay->prev->next = relay->next;
    else
        gate->relays = relay->next;
    relay->next = gate->closed; /* events that epoll has returned already may still point at it */
    gate->closed = relay;
}

void relay_free(struct rpc_relay *relay)
{
    free(relay->up.data);
    free(relay->down.data);
    free(relay);
}

/* ---- pipes ---- */

/* Keeps what is left of a piece after `sent` bytes. data is the pipe's own or the gate's scratch buffer. */
static void pipe_keep(struct rpc_pipe *p, const uint8_t *data, size_t len, size_t ready, size_t sent)
{
    const size_t left = len - sent;

    p->len = left;
    p->ready = ready - sent;
    if (!left) {
        free(p->data);
        p->data = NULL;
    } else if (data != p->data) {
        p->data = xmemdup(data + sent, left);
    } else if (sent) {
        memmove(p->data, p->data + sent, left);
    }
}

/* Returns the bytes read; 0: none for now, or *eof. */
static size_t gate_socket_read(const struct rpc_gate_socket *sock, void *out, size_t room, bool *eof)
{
    ssize_t got;

    do
        got = recv(sock->fd, out, room, 0);
    while (got < 0 && errno == EINTR);
    if (got == 0 || (got < 0 && errno != EAGAIN))
        *eof = true;
    return got > 0 ? (size_t)got : 0;
}

/* *sent: the bytes written. False: the other side has closed. */
static bool gate_socket_write(const struct rpc_gate_socket *sock, const uint8_t *data, size_t len,
                              size_t *sent)
{
    ssize_t put;

    *sent = 0;
    if (!len)
        return true;
    do
        put = send(sock->fd, data, len, MSG_NOSIGNAL);
    while (put < 0 && errno == EINTR);
    if (put > 0)
        *sent = (size_t)put;
    return put >= 0 || errno == EAGAIN || errno == ENOBUFS;
}

static bool relay_abuse(struct rpc_relay *relay, uint64_t *counter, const char *why)
{
    pthread_mutex_lock(&relay->gate->lock);
    ++*counter;
    pthread_mutex_unlock(&relay->gate->lock);
    gate_log_drop(relay->gate, relay, why);
    return false;
}

/* Forwards one piece to gRPC. *more: there may be another. */
static bool relay_forward_up(struct rpc_relay *relay, int64_t now, bool *more)
{
    struct rpc_gate *gate = relay->gate;
    struct rpc_pipe *p = &relay->up;
    const uint8_t *data = p->data;
    size_t len = p->len, passed = 0, sent;
    const char *why = NULL;

    *more = false;
    if (!len && !p->eof) {
        len = gate_socket_read(&relay->tcp, gate->scratch, RPC_GATE_SCRATCH, &p->eof);
        data = gate->scratch;
        *more = len == RPC_GATE_SCRATCH;
    }
    if (!len)
        return true;
    const enum rpc_frames_action action = rpc_frames_feed(&relay->frames, data + p->ready, len - p->ready,
                                                          atomic_load(&relay->admitted), now, &passed, &why);
    if (action == RPC_FRAMES_ABUSE)
        return relay_abuse(relay, &gate->report.abusive, why);
    if (action == RPC_FRAMES_FOREIGN)
        return relay_abuse(relay, &gate->report.foreign, "another protocol");
    const size_t ready = p->ready + passed;
    if (!gate_socket_write(&relay->back, data, ready, &sent)) {
        /* gRPC has hung up. Its last answer may still be on the way down, so only this direction ends. */
        p->eof = true;
        pipe_keep(p, data, len, len, len);
        *more = false;
        return true;
    }
    pipe_keep(p, data, len, ready, sent);
    if (sent && !relay->fed) {
        relay->fed = true;
        relay->unread_ms = 0;
    }
    if (sent || p->len)
        relay_track_unread(relay, true);
    *more = *more && !p->len;
    return true;
}

/* Forwards one piece to the client. */
static bool relay_forward_down(struct rpc_relay *relay, bool *more)
{
    struct rpc_gate *gate = relay->gate;
    struct rpc_pipe *p = &relay->down;
    const uint8_t *data = p->data;
    size_t len = p->len, sent;

    *more = false;
    if (!len && !p->eof) {
        len = gate_socket_read(&relay->back, gate->scratch, RPC_GATE_SCRATCH, &p->eof);
        data = gate->scratch;
        *more = len == RPC_GATE_SCRATCH;
    }
    if (!len)
        return true;
    if (!gate_socket_write(&relay->tcp, data, len, &sent))
        return false;
    pipe_keep(p, data, len, len, sent);
    *more = *more && !p->len;
    return true;
}

static bool relay_interest(struct rpc_relay *relay)
{
    const struct rpc_pipe *up = &relay->up, *down = &relay->down;
    const uint32_t tcp =
        (!up->len && !up->eof ? (uint32_t)EPOLLIN : 0) | (down->len ? (uint32_t)EPOLLOUT : 0);
    const uint32_t back =
        (!down->len && !down->eof ? (uint32_t)EPOLLIN : 0) | (up->ready ? (uint32_t)EPOLLOUT : 0);

    return gate_socket_set_events(relay->gate, &relay->tcp, tcp) &&
           gate_socket_set_events(relay->gate, &relay->back, back);
}

bool relay_carry(struct rpc_relay *relay, bool up, bool down, int64_t now)
{
    for (int i = 0; i < TURNS && (up || down); i++) {
        if (up && !relay_forward_up(relay, now, &up))
            return false;
        if (down && !relay_forward_down(relay, &down))
            return false;
    }
    if (relay->down.eof && !relay->down.len)
        return false; /* gRPC has closed it, and the client has all bytes */
    if (relay->down.eof && !relay->ending_ms)
        relay->ending_ms = now;
    if (relay->up.eof && !relay->up.len && !relay->shut) {
        relay->shut = true;
        shutdown(relay->back.fd, SHUT_WR);
    }
    return relay_interest(relay);
}

/* ---- before the handover ---- */

/* A gRPC client makes no call before it has received the server's SETTINGS. The gate sends empty ones;
 * those of gRPC follow as the second, and the client's acknowledgement of the first is harmless to gRPC.
 * So only clients that make a call reach gRPC: a preface alone does not occupy a connection there. */
static bool relay_greet(const struct rpc_relay *relay)
{
    static const uint8_t settings[9] = {[3] = 4};

    return send(relay->tcp.fd, settings, sizeof(settings), MSG_NOSIGNAL) == sizeof(settings);
}

bool relay_read_first(struct rpc_relay *relay, enum rpc_stage *stage)
{
    struct rpc_pipe *p = &relay->up;
    const bool tls = relay->listener->tls;
    uint8_t first[FIRST_BYTES];
    bool eof = false, enough;

    if (p->len)
        memcpy(first, p->data, p->len);
    const size_t got = gate_socket_read(&relay->tcp, first + p->len, sizeof(first) - p->len, &eof);
    const size_t len = p->len + got;
    if (eof) /* the client hung up before it made a request */
        return false;
    if (!rpc_frames_begins(first, len, tls, &enough))
        return relay_abuse(relay, &relay->gate->report.foreign, "another protocol");
    if (got) {
        free(p->data);
        p->data = xmemdup(first, len);
        p->len = len;
    }
    *stage = RPC_SILENT;
    if (!enough)
        return true;
    /* Behind TLS nothing can be read: the handshake counts as a request, since only gRPC can answer it. */
    *stage = tls || len == sizeof(first) || rpc_frames_asks(first, len) ? RPC_SPOKEN : RPC_GREETED;
    return tls || relay->connection.stage != RPC_SILENT || relay_greet(relay);
}

/* Connects to gRPC from a socket whose name tells gRPC the connection's number and address. */
static enum relay_handover back_connect(const struct rpc_relay *relay, int fd)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX}, to = {.sun_family = AF_UNIX};
    const int len = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "%s%llu-%s", relay->gate->prefix,
                             (unsigned long long)relay->number, relay->address);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);

    snprintf(to.sun_path, sizeof(to.sun_path), "%s", relay->listener->path);
    if (bind(fd, (const struct sockaddr *)&name, size))
        return RELAY_FAILED;
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0)
        return RELAY_HANDED_OVER;
    return errno == EAGAIN ? RELAY_LATER : RELAY_FAILED; /* EAGAIN: gRPC's queue of connections is full */
}

enum relay_handover relay_hand_over(struct rpc_relay *relay, int64_t now)
{
    CLEANUP(close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return RELAY_LATER;
    const enum relay_handover handover = back_connect(relay, fd);
    if (handover != RELAY_HANDED_OVER)
        return handover;
    relay->back.fd = fd;
    fd = -1;
    relay->since_ms = now;
    rpc_frames_init(&relay->frames, relay->listener->tls, now);
    return RELAY_HANDED_OVER;
}

/* ---- at each periodic check ---- */

bool relay_is_unread(struct rpc_relay *relay, int64_t now)
{
    int unread = 0;
    const bool known = relay->back.fd >= 0 && ioctl(relay->back.fd, SIOCOUTQ, &unread) == 0;

    /* gRPC stops reading from a client that does not read its answers. Then the client is slow, not gRPC. */
    if (!known || unread == 0 || relay->down.len)
        relay->unread_ms = 0;
    else if (!relay->fed && !relay->unread_ms)
        relay->unread_ms = now;
    relay->fed = false;
    if (!unread && !relay->up.len)
        relay_track_unread(relay, false);
    return relay->unread_ms != 0;
}
