/* One connection to the relay.
 *
 * The happy path: it gets a nonce, answers with a hello (base/net/relay_hello.h), and waits until the rank at the other end has
 * come with the same name. Both hear so by one byte. From then on the bytes of each are sent to the other.
 *
 * The relay reads from one end only when it has nothing left to send to the other end. So an end that does not read stops
 * its peer, as on a direct connection, and at most RELAY_PIECE bytes for each end are in memory.
 *
 * Failure modes: bytes that are no valid hello, and bytes before the peer has come, end the connection without an answer. If
 * one end closes or fails, the other gets the bytes that were received for it, and is closed then. */
#include "daemon/relay/relay_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/crypto/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/net/tcp_listen.h"

#define LOG_EVERY_MS 10000

/* ---- lists and descriptors */

static void caller_leave_list(struct relay_caller *c)
{
    struct caller_list *list = &c->server->callers[c->state];

    *(c->prev ? &c->prev->next : &list->first) = c->next;
    *(c->next ? &c->next->prev : &list->last) = c->prev;
    list->count--;
}

static void caller_enter_list(struct relay_caller *c, enum caller_state state)
{
    struct caller_list *list = &c->server->callers[state];

    c->state = state;
    c->since_ms = clock_boot_ms();
    c->next = NULL;
    c->prev = list->last;
    *(list->last ? &list->last->next : &list->first) = c;
    list->last = c;
    list->count++;
}

static void caller_move(struct relay_caller *c, enum caller_state state)
{
    struct relay_server *s = c->server;

    caller_leave_list(c);
    caller_enter_list(c, state);
    s->links_now = s->callers[CALLER_LINKED].count / 2;
    s->strangers_now = s->callers[CALLER_STRANGER].count;
}

bool relay_watch_fd(struct relay_server *s, int fd, void *data, uint32_t *now, uint32_t events)
{
    struct epoll_event entry = {.events = events, .data.ptr = data};

    if (*now == events)
        return true;
    if (epoll_ctl(s->epoll, *now ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &entry))
        return false;
    *now = events;
    return true;
}

/* epoll reports errors in any case, so EPOLLERR stands for "nothing else" here. */
static void caller_watch(struct relay_caller *c, uint32_t events)
{
    if (!relay_watch_fd(c->server, c->fd, c, &c->events, events ? events : (uint32_t)EPOLLERR))
        relay_caller_gone(c);
}

static void unsent_drop(struct relay_caller *c)
{
    c->server->buffered_now -= c->unsent_len - c->unsent_at;
    free(steal(c->unsent));
    c->unsent_at = c->unsent_len = 0;
}

/* Between fork and exec a child of the daemon holds a copy of the descriptor, for which epoll would go on reporting events.
 * So the entry is removed first. */
static void caller_close(struct relay_caller *c)
{
    if (c->state == CALLER_CLOSED)
        return;
    epoll_ctl(c->server->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    close_fd(&c->fd);
    unsent_drop(c);
    caller_move(c, CALLER_CLOSED);
}

void relay_caller_drop(struct relay_caller *c, const char *why)
{
    struct relay_server *s = c->server;
    int64_t now = clock_boot_ms();

    s->refused++;
    if (!s->logged_ms || now - s->logged_ms >= LOG_EVERY_MS) {
        s->logged_ms = now;
        log_warn("relay_refused", "why=%s refused=%llu", LOG_Q(why), (unsigned long long)s->refused);
    }
    caller_close(c);
}

void relay_caller_gone(struct relay_caller *c)
{
    struct relay_caller *peer = steal(c->peer);

    if (c->state == CALLER_CLOSED)
        return;
    caller_close(c);
    if (!peer)
        return;
    peer->peer = NULL;
    if (!peer->unsent) {
        caller_close(peer);
        return;
    }
    caller_move(peer, CALLER_ENDING);
    caller_watch(peer, EPOLLOUT);
}

/* ---- before the link */

void relay_caller_open(struct relay_server *s, int fd)
{
    struct relay_caller *c = xcalloc(1, sizeof(*c));

    c->server = s;
    c->fd = fd;
    caller_enter_list(c, CALLER_STRANGER);
    s->strangers_now = s->callers[CALLER_STRANGER].count;
    id_random(c->nonce, sizeof(c->nonce));
    tcp_tune(fd);
    /* A new socket has room for the nonce. */
    if (send(fd, c->nonce, sizeof(c->nonce), MSG_NOSIGNAL) != (ssize_t)sizeof(c->nonce))
        relay_caller_drop(c, "it closed the connection at once");
    else
        caller_watch(c, EPOLLIN);
}

static struct relay_caller *waiting_find(const struct relay_server *s, const struct relay_hello *h,
                                         enum relay_end end)
{
    for (struct relay_caller *c = s->callers[CALLER_WAITING].first; c; c = c->next)
        if (c->hello.end == end && c->hello.job == h->job && c->hello.generation == h->generation &&
            !memcmp(c->hello.name, h->name, sizeof(h->name)))
            return c;
    return NULL;
}

static bool caller_tell_paired(const struct relay_caller *c)
{
    const uint8_t paired = RELAY_PAIRED;

    return send(c->fd, &paired, 1, MSG_NOSIGNAL) == 1;
}

static void callers_link(struct relay_caller *a, struct relay_caller *b)
{
    struct relay_server *s = a->server;

    a->peer = b;
    b->peer = a;
    caller_move(a, CALLER_LINKED);
    caller_move(b, CALLER_LINKED);
    s->links++;
    log_debug("relay_link", "job=%lld gen=%lld links=%llu", (long long)a->hello.job,
              (long long)a->hello.generation, (unsigned long long)s->links_now);
    if (caller_tell_paired(a) && caller_tell_paired(b))
        caller_watch(a, EPOLLIN);
    else
        relay_caller_gone(a);
    if (b->state == CALLER_LINKED)
        caller_watch(b, EPOLLIN);
}

static void caller_admit(struct relay_caller *c)
{
    struct relay_server *s = c->server;
    struct relay_caller *old = waiting_find(s, &c->hello, c->hello.end);
    struct relay_caller *peer =
        waiting_find(s, &c->hello, c->hello.end == RELAY_ACCEPTOR ? RELAY_CONNECTOR : RELAY_ACCEPTOR);

    /* A rank that asks again has given up its first connection. */
    if (old)
        caller_close(old);
    if (peer ? s->callers[CALLER_LINKED].count / 2 >= s->options.links
             : s->callers[CALLER_WAITING].count >= s->options.links)
        relay_caller_drop(c, "all places are taken");
    else if (peer)
        callers_link(c, peer);
    else
        caller_move(c, CALLER_WAITING);
}

static void stranger_read(struct relay_caller *c)
{
    ssize_t n = recv(c->fd, c->in + c->got, sizeof(c->in) - c->got, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        relay_caller_drop(c, "it closed the connection before it showed a ticket");
        return;
    }
    c->got += (size_t)n;
    if (c->got < sizeof(c->in))
        return;
    if (relay_read_hello(&c->hello, c->in, c->server->options.key, c->nonce))
        caller_admit(c);
    else
        relay_caller_drop(c, "it has no valid ticket");
}

/* ---- copying */

/* Returns the bytes that the socket took, or -1 if the other side is gone. */
static ssize_t caller_send(const struct relay_caller *c, const uint8_t *data, size_t size)
{
    ssize_t n = send(c->fd, data, size, MSG_NOSIGNAL);

    return n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS) ? 0 : n;
}

/* Copies one piece from c to its peer. */
static void linked_read(struct relay_caller *c)
{
    struct relay_server *s = c->server;
    struct relay_caller *peer = c->peer;
    ssize_t n, sent;

    BUG_ON(peer->unsent); /* c is not read from then */
    n = recv(c->fd, s->scratch, RELAY_PIECE, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        relay_caller_gone(c);
        return;
    }
    s->bytes += (uint64_t)n;
    sent = caller_send(peer, s->scratch, (size_t)n);
    if (sent < 0) {
        relay_caller_gone(peer);
        return;
    }
    if (sent == n)
        return;
    peer->unsent_len = (size_t)(n - sent);
    peer->unsent = xmemdup(s->scratch + sent, peer->unsent_len);
    s->buffered_now += peer->unsent_len;
    /* c's bytes wait in its sender's kernel until the peer has taken these; what the peer sends may pass. */
    caller_watch(c, c->events & ~(uint32_t)EPOLLIN);
    if (peer->state == CALLER_LINKED)
        caller_watch(peer, peer->events | EPOLLOUT);
}

static void unsent_write(struct relay_caller *c)
{
    ssize_t n = caller_send(c, c->unsent + c->unsent_at, c->unsent_len - c->unsent_at);

    if (n < 0) {
        relay_caller_gone(c);
        return;
    }
    c->unsent_at += (size_t)n;
    c->server->buffered_now -= (uint64_t)n;
    if (c->unsent_at < c->unsent_len)
        return;
    unsent_drop(c);
    if (c->state == CALLER_ENDING) {
        caller_close(c);
        return;
    }
    caller_watch(c, c->events & ~(uint32_t)EPOLLOUT);
    if (c->state == CALLER_LINKED)
        caller_watch(c->peer, c->peer->events | EPOLLIN);
}

void relay_caller_handle(struct relay_caller *c, uint32_t events)
{
    bool failed = events & (EPOLLERR | EPOLLHUP);

    switch (c->state) {
    case CALLER_STRANGER:
        stranger_read(c);
        break;
    case CALLER_WAITING: /* it has nothing to say before its peer has come: it has closed, or is no rank */
        relay_caller_gone(c);
        break;
    case CALLER_LINKED:
    case CALLER_ENDING:
        if (failed)
            relay_caller_gone(c);
        else if (events & EPOLLOUT && c->unsent)
            unsent_write(c);
        if (c->state == CALLER_LINKED && events & EPOLLIN)
            linked_read(c);
        break;
    case CALLER_CLOSED:
    case CALLER_STATES:
        break;
    }
}
