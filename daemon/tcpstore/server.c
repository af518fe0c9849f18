#include "daemon/tcpstore/server.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/tcpstore/conversation.h"

static const size_t STORE_LIMIT = 128 << 20;
static const size_t TRAFFIC_LIMIT = 72 << 20; /* the largest request and the largest answer at once */
enum {
    CLIENTS_LIMIT = 32768,
    FILES_KEPT = 16,       /* descriptors that are not clients */
    READ_TURN = 256 << 10, /* bytes of one connection before the others have their turn */
    EVENTS = 128,
    ACCEPT_PAUSE_MS = 1000, /* without a free descriptor */
    STALL_MS = 10000,
    MOVED =
        1 << 20, /* bytes that must move in that time, unless fewer are left: a slow network has 100 kB/s */
};

struct client {
    struct tcpstore_conversation talk; /* first: the table's callback finds the client by it */
    struct tcpstore_server *server;
    int fd;
    uint32_t events; /* that epoll waits for */
    size_t traffic;  /* bytes of its buffers, counted in the server's sum */
    int64_t
        busy_since; /* since when fewer than MOVED of its unfinished bytes have moved; 0: there are none */
    size_t moved;   /* bytes since then */
    bool spoken;    /* it has sent a request that is no greeting, so it is in the list `spoken` */
    bool
        held; /* its request waits for room for the reply, in the server's list of these; nothing is unsent */
    bool dirty; /* in the list of clients to settle */
    bool dead;  /* to be closed when the client is settled */
    struct client *next_dirty;
    struct client *next, *prev; /* of the clients of its list, oldest first */
    struct client *next_held, *prev_held;
};

struct client_list {
    struct client *first, *last;
    size_t count;
};

struct tcpstore_server {
    struct tcpstore_options options;
    struct tcpstore_table *table;
    struct client_list silent, spoken;
    struct client *dirty;
    struct client *first_held, *last_held; /* the first one gets its reply first */
    size_t traffic, held_traffic;          /* the second: of the clients in this list */
    int64_t check_at; /* the next look for stalled clients, while the list is not empty */
    int epoll;
    bool leaving, paused;
    int64_t leave_at, resume_at;
};

static void clients_add(struct client_list *list, struct client *c)
{
    c->next = NULL;
    c->prev = list->last;
    *(list->last ? &list->last->next : &list->first) = c;
    list->last = c;
    list->count++;
}

static void clients_remove(struct client_list *list, struct client *c)
{
    *(c->prev ? &c->prev->next : &list->first) = c->next;
    *(c->next ? &c->next->prev : &list->last) = c->prev;
    list->count--;
}

static struct client_list *client_home(struct client *c)
{
    return c->spoken ? &c->server->spoken : &c->server->silent;
}

/* A client whose state has changed is settled at the end of the turn: its events are set, or it is closed. */
static void client_mark_dirty(struct client *c)
{
    if (c->dirty)
        return;
    c->dirty = true;
    c->next_dirty = c->server->dirty;
    c->server->dirty = c;
}

/* Bytes have left, or the list has changed: the first request that is held may have room now. */
static void server_try_held(struct tcpstore_server *s)
{
    if (s->first_held)
        client_mark_dirty(s->first_held);
}

static void client_hold(struct client *c)
{
    struct tcpstore_server *s = c->server;

    if (c->held)
        return;
    c->held = true;
    c->prev_held = s->last_held;
    c->next_held = NULL;
    *(s->last_held ? &s->last_held->next_held : &s->first_held) = c;
    s->last_held = c;
    s->held_traffic += c->traffic;
}

static void client_unhold(struct client *c)
{
    struct tcpstore_server *s = c->server;

    if (!c->held)
        return;
    c->held = false;
    *(c->prev_held ? &c->prev_held->next_held : &s->first_held) = c->next_held;
    *(c->next_held ? &c->next_held->prev_held : &s->last_held) = c->prev_held;
    s->held_traffic -= c->traffic;
    c->busy_since = c->traffic ? clock_boot_ms() : 0; /* until now the server was the slow one */
    c->moved = 0;
    server_try_held(s);
}

static void client_kill(struct client *c)
{
    c->dead = true;
    client_mark_dirty(c);
}

/* The table has answered a client that waited, perhaps for what another one has set. */
static void client_woken(void *ctx, struct tcpstore_waiter *waiter)
{
    tcpstore_conversation_woken(ctx, waiter);
    client_mark_dirty((struct client *)waiter);
}

static bool epoll_change(const struct tcpstore_server *s, int op, int fd, uint32_t events, void *who)
{
    struct epoll_event event = {.events = events, .data.ptr = who};

    return !epoll_ctl(s->epoll, op, fd, &event);
}

static void client_free(struct client *c)
{
    struct tcpstore_server *s = c->server;

    client_unhold(c);
    clients_remove(client_home(c), c);
    s->traffic -= c->traffic;
    server_try_held(s);
    tcpstore_conversation_release(&c->talk, s->table);
    close(c->fd); /* which also ends its place in epoll */
    free(c);
}

/* Counts the memory of the buffers. Empty ones are freed, so that clients without unfinished bytes do not count. */
static void client_count_traffic(struct client *c)
{
    struct buf *in = &c->talk.in, *out = &c->talk.out;
    size_t now;

    if (!in->len)
        buf_release(in);
    if (!out->len)
        buf_release(out);
    now = in->cap + out->cap;
    if (now < c->traffic)
        server_try_held(c->server);
    c->server->traffic += now - c->traffic;
    if (c->held)
        c->server->held_traffic += now - c->traffic;
    c->traffic = now;
    if (!now)
        c->busy_since = 0;
    else if (!c->busy_since || c->moved >= MOVED) {
        c->busy_since = clock_boot_ms();
        c->moved = 0;
    }
}

static void client_send(struct client *c)
{
    struct buf *out = &c->talk.out;

    while (out->len && !c->dead) {
        ssize_t n = send(c->fd, out->data, out->len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            client_kill(c);
        if (n < 0)
            return;
        buf_consume(out, (size_t)n);
        c->moved += (size_t)n;
    }
}

/* How large a reply may be now. Replies take up to half of the limit, so that they leave room for requests. */
static size_t client_room(const struct client *c)
{
    const struct tcpstore_server *s = c->server;
    const size_t most = s->options.traffic_limit / 2;

    /* No other bytes will go, so there is nothing to wait for. This client's own request stays until it is obeyed. */
    if (s->traffic - s->held_traffic == (c->held ? 0 : c->traffic) && (!s->first_held || s->first_held == c))
        return SIZE_MAX;
    if (s->first_held && s->first_held != c) /* others were first */
        return 0;
    return s->traffic < most ? most - s->traffic : 0;
}

static void client_obey(struct client *c)
{
    struct err e;

    if (c->dead)
        return;
    if (tcpstore_converse(&c->talk, c->server->table, client_room(c), &e)) {
        /* a stranger can cause any number of the first kind */
        if (e.code == ERR_INVALID_ARGUMENT)
            log_debug("client_refused", "why=%s", LOG_Q(e.msg));
        else
            log_warn("client_refused", "why=%s", LOG_Q(e.msg));
        client_kill(c);
    }
    /* A client with earlier replies to read does not stand in the list, where others would wait for it to read them. */
    if (c->talk.held && !c->talk.out.len)
        client_hold(c);
    else
        client_unhold(c);
    if (!c->spoken && c->talk.asked) {
        clients_remove(&c->server->silent, c);
        c->spoken = true;
        clients_add(&c->server->spoken, c);
    }
}

static void client_read(struct client *c)
{
    static char chunk[READ_TURN];
    ssize_t n = recv(c->fd, chunk, sizeof(chunk), MSG_DONTWAIT);

    if (n > 0) {
        buf_reserve(&c->talk.in, (size_t)n); /* no more: the memory counts */
        buf_append(&c->talk.in, chunk, (size_t)n);
        c->moved += (size_t)n;
    } else if (!n || (errno != EAGAIN && errno != EINTR))
        client_kill(c);
}

/* Only reads. Requests are obeyed when the client is settled, where each reply is counted before the next is built. */
static void client_serve(struct client *c, uint32_t events)
{
    client_mark_dirty(c);
    if (events & (EPOLLERR | EPOLLHUP)) {
        client_kill(c);
        return;
    }
    if (events & EPOLLIN)
        client_read(c);
}

static bool client_has_stalled(const struct client *c)
{
    return !c->held && c->busy_since && clock_boot_ms() - c->busy_since >= c->server->options.stall_ms;
}

/* Of two connections, whether the first is closed before the second. */
static bool client_goes_first(const struct client *a, const struct client *b)
{
    const bool stalled = client_has_stalled(a);

    if (stalled != client_has_stalled(b))
        return stalled;
    if (a->held != b->held) /* the server keeps it waiting */
        return b->held;
    /* A worker sends its requests at once, but the server may be slow to send it a large reply. */
    if (!stalled && !a->talk.out.len != !b->talk.out.len)
        return !a->talk.out.len;
    return a->busy_since < b->busy_since;
}

static struct client *client_slowest(const struct tcpstore_server *s)
{
    const struct client_list *lists[] = {&s->silent, &s->spoken};
    struct client *slowest = NULL;

    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        for (struct client *c = lists[i]->first; c; c = c->next)
            if (c->busy_since && (!slowest || client_goes_first(c, slowest)))
                slowest = c;
    return slowest;
}

/* Closes connections until the bytes on their way are within the limit. Their memory is freed at once. */
static void server_limit_traffic(struct tcpstore_server *s)
{
    struct client *c;

    while (s->traffic > s->options.traffic_limit && (c = client_slowest(s))) {
        log_warn("client_closed", "why=\"%zu bytes of requests and answers are unfinished\"", s->traffic);
        client_kill(c);
        buf_release(&c->talk.in);
        buf_release(&c->talk.out);
        client_count_traffic(c);
    }
}

/* Clients that do not read, or do not finish a request, must not keep others from their replies. */
static void server_close_stalled(struct tcpstore_server *s)
{
    const struct client_list *lists[] = {&s->silent, &s->spoken};

    if (!s->first_held || clock_boot_ms() < s->check_at)
        return;
    s->check_at = clock_boot_ms() + s->options.stall_ms / 4 + 1;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        for (struct client *c = lists[i]->first; c; c = c->next)
            if (client_has_stalled(c)) {
                log_warn("client_closed", "why=\"stalled for %lld ms while others wait for their replies\"",
                         (long long)s->options.stall_ms);
                client_kill(c);
            }
}

/* Sends what can be sent, obeys requests that waited for that, and says what epoll waits for now. The client is not
 * in the dirty list, but still marked dirty, so that nothing in here puts it back: it may be freed here. */
static void client_settle(struct client *c)
{
    uint32_t events;
    size_t before;

    client_send(c);
    do { /* ends: each turn takes requests out of `in` */
        before = c->talk.in.len;
        if (!c->talk.out.len && before >= c->talk.parser.want)
            client_obey(c);
        client_count_traffic(c);
        server_limit_traffic(c->server); /* before the next reply is built */
        client_send(c);
    } while (!c->dead && c->talk.in.len != before);
    client_count_traffic(c);
    if (c->dead) {
        client_free(c);
        return;
    }
    /* no new request before the last answer has been sent */
    events = c->talk.out.len ? EPOLLOUT : c->held ? 0 : EPOLLIN;
    if (events != c->events && !epoll_change(c->server, EPOLL_CTL_MOD, c->fd, events, c)) {
        client_free(c);
        return;
    }
    c->events = events;
    c->dirty = false;
}

static void clients_settle(struct tcpstore_server *s)
{
    while (s->dirty) {
        struct client *c = s->dirty;

        s->dirty = c->next_dirty;
        client_settle(c);
    }
}

static void client_add(struct tcpstore_server *s, int fd)
{
    struct client *c = xcalloc(1, sizeof(*c));
    int on = 1;

    /* a peer whose machine has died is noticed, and small answers are not held back */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    c->server = s;
    c->fd = fd;
    c->events = EPOLLIN;
    clients_add(&s->silent, c);
    if (!epoll_change(s, EPOLL_CTL_ADD, fd, c->events, c))
        client_free(c);
}

static void listener_pause(struct tcpstore_server *s, bool pause)
{
    s->paused = pause;
    s->resume_at = clock_boot_ms() + ACCEPT_PAUSE_MS;
    (void)epoll_change(s, EPOLL_CTL_MOD, s->options.listener, pause ? 0 : EPOLLIN, &s->options.listener);
}

static void clients_accept(struct tcpstore_server *s)
{
    for (int i = 0; i < EVENTS; i++) {
        int fd = accept4(s->options.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
            log_warn("no_connections", "why=\"no free descriptor or memory\" clients=%zu",
                     s->silent.count + s->spoken.count);
            listener_pause(s, true);
        }
        if (fd < 0)
            return;
        if (s->silent.count + s->spoken.count < s->options.clients_limit) {
            client_add(s, fd);
            continue;
        }
        if (!s->silent.first) {
            close(fd);
            continue;
        }
        client_free(s->silent.first); /* nothing is dirty between two turns */
        client_add(s, fd);
    }
}

/* The owner never writes, so a readable pipe has ended. */
static void owner_left(struct tcpstore_server *s)
{
    (void)epoll_change(s, EPOLL_CTL_DEL, s->options.owner, 0, NULL);
    s->leaving = true;
    s->leave_at = clock_boot_ms() + s->options.linger_ms;
}

static int turn_timeout(const struct tcpstore_server *s)
{
    int64_t now = clock_boot_ms(), at = INT64_MAX;

    if (s->paused)
        at = s->resume_at;
    if (s->leaving && s->leave_at < at)
        at = s->leave_at;
    if (s->first_held && s->check_at < at)
        at = s->check_at;
    if (at == INT64_MAX)
        return -1;
    return at > now ? (int)(at - now < 60000 ? at - now : 60000) : 0;
}

static void server_turn(struct tcpstore_server *s)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(s->epoll, events, EVENTS, turn_timeout(s));
    bool accepts = false;

    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr == &s->options.listener)
            accepts = true;
        else if (events[i].data.ptr == &s->options.owner)
            owner_left(s);
        else
            client_serve(events[i].data.ptr, events[i].events);
    }
    clients_settle(s);
    if (accepts) /* not before: it may free clients */
        clients_accept(s);
    server_close_stalled(s);
    clients_settle(s); /* those that have room now */
    if (s->paused && clock_boot_ms() >= s->resume_at)
        listener_pause(s, false);
}

static size_t clients_allowed(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur > CLIENTS_LIMIT + FILES_KEPT)
        return CLIENTS_LIMIT;
    return files.rlim_cur > 2 * FILES_KEPT ? files.rlim_cur - FILES_KEPT : FILES_KEPT;
}

static void server_release(struct tcpstore_server *s)
{
    while (s->silent.first)
        client_free(s->silent.first);
    while (s->spoken.first)
        client_free(s->spoken.first);
    tcpstore_table_free(s->table);
    close_fd(&s->epoll);
    close_fd(&s->options.listener);
}

/* Connections without a request do not count. Clients of the plain dialect open a second connection that they do not use, and
 * a stranger may send a greeting and stay. */
static bool server_is_done(const struct tcpstore_server *s)
{
    return s->leaving && (!s->spoken.count || clock_boot_ms() >= s->leave_at);
}

enum err_code tcpstore_serve(const struct tcpstore_options *options, struct err *e)
{
    CLEANUP(server_release) struct tcpstore_server s = {.options = *options};

    s.options.store_limit = options->store_limit ? options->store_limit : STORE_LIMIT;
    s.options.traffic_limit = options->traffic_limit ? options->traffic_limit : TRAFFIC_LIMIT;
    s.options.stall_ms = options->stall_ms ? options->stall_ms : STALL_MS;
    s.options.clients_limit = options->clients_limit ? options->clients_limit : clients_allowed();
    s.table = tcpstore_table_create(s.options.store_limit, client_woken, NULL);
    s.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s.epoll < 0 || !epoll_change(&s, EPOLL_CTL_ADD, s.options.listener, EPOLLIN, &s.options.listener) ||
        (s.options.owner >= 0 &&
         !epoll_change(&s, EPOLL_CTL_ADD, s.options.owner, EPOLLIN, &s.options.owner)))
        return err_sys(e, errno, "epoll");
    while (!server_is_done(&s))
        server_turn(&s);
    return ERR_OK;
}
