#include "daemon/relay/relay_server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/net/tcp_listen.h"
#include "daemon/relay/relay_state.h"

#define BACKLOG 1024
#define EVENTS 64
#define CHECK_MS 100          /* how often time limits are checked while there are any */
#define GRACE_MS 250          /* a stranger has this time for its hello, whoever else knocks */
#define ACCEPT_FAILED_MS 1000 /* pause after the process had no descriptor or the kernel no memory left */

/* ---- accepting */

static void server_accept_later(struct relay_server *s, int64_t at)
{
    struct epoll_event none = {.data.ptr = &s->listener};

    s->accept_at = at;
    epoll_ctl(s->epoll, EPOLL_CTL_MOD, s->listener, &none);
}

static void server_accept_again(struct relay_server *s)
{
    struct epoll_event in = {.events = EPOLLIN, .data.ptr = &s->listener};

    s->accept_at = 0;
    epoll_ctl(s->epoll, EPOLL_CTL_MOD, s->listener, &in);
}

/* The listener stays readable, so without a pause the thread would try again at once, for ever. */
static void server_accept_failed(struct relay_server *s, int why)
{
    if (why == EAGAIN || why == EINTR || why == ECONNABORTED)
        return;
    if (why == EMFILE || why == ENFILE)
        log_warn("relay_no_descriptor", "remedy=\"raise the limit of open files of this daemon\"");
    else
        log_warn("relay_accept_failed", "why=%s", LOG_Q(strerror(why)));
    server_accept_later(s, clock_boot_ms() + ACCEPT_FAILED_MS);
}

/* If all places of strangers are taken, a new one replaces the oldest. A rank far away needs a while for its hello, so those
 * that have just come are left, and new connections wait in the kernel. */
static void server_accept(struct relay_server *s)
{
    const struct caller_list *strangers = &s->callers[CALLER_STRANGER];
    int64_t now = clock_boot_ms();

    if (strangers->count >= s->options.strangers && now - strangers->first->since_ms < GRACE_MS) {
        server_accept_later(s, strangers->first->since_ms + GRACE_MS);
        return;
    }
    int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        server_accept_failed(s, errno);
        return;
    }
    if (strangers->count >= s->options.strangers)
        relay_caller_drop(strangers->first, "too many connections without a ticket");
    relay_caller_open(s, fd);
}

/* ---- the thread */

static void callers_expire(struct relay_server *s, enum caller_state state, int limit_ms)
{
    struct caller_list *list = &s->callers[state];
    int64_t now = clock_boot_ms();

    while (list->first && now - list->first->since_ms >= limit_ms)
        if (state == CALLER_STRANGER)
            relay_caller_drop(list->first, "it showed no ticket in time");
        else
            relay_caller_gone(list->first);
}

static void closed_free(struct relay_server *s)
{
    struct caller_list *closed = &s->callers[CALLER_CLOSED];
    struct relay_caller *c = closed->first, *next;

    *closed = (struct caller_list){0};
    for (; c; c = next) {
        next = c->next;
        free(c);
    }
}

static void server_check_times(struct relay_server *s)
{
    callers_expire(s, CALLER_STRANGER, s->options.hello_ms);
    callers_expire(s, CALLER_WAITING, s->options.wait_ms);
    callers_expire(s, CALLER_ENDING, s->options.flush_ms);
    if (s->accept_at && clock_boot_ms() >= s->accept_at)
        server_accept_again(s);
}

static bool server_has_limits(const struct relay_server *s)
{
    return s->accept_at || s->callers[CALLER_STRANGER].first || s->callers[CALLER_WAITING].first ||
           s->callers[CALLER_ENDING].first;
}

static void *server_run(void *arg)
{
    struct relay_server *s = arg;
    struct epoll_event events[EVENTS];

    while (!atomic_load(&s->stop)) {
        int count = epoll_wait(s->epoll, events, EVENTS, server_has_limits(s) ? CHECK_MS : -1);

        for (int i = 0; i < count; i++) {
            void *at = events[i].data.ptr;

            if (at == &s->listener)
                server_accept(s);
            else if (at != &s->wake) /* wake only ends epoll_wait */
                relay_caller_handle(at, events[i].events);
        }
        server_check_times(s);
        closed_free(s);
    }
    return NULL;
}

/* ---- life */

static enum err_code server_listen(struct relay_server *s, const char *address, struct err *e)
{
    const char *colon = address ? strrchr(address, ':') : NULL;
    size_t size = colon ? (size_t)(colon - address) : 0;
    char host[TCP_HOST_MOST], *end = NULL;
    long port = colon && colon[1] >= '0' && colon[1] <= '9' ? strtol(colon + 1, &end, 10) : -1;

    if (size > 1 && address[0] == '[' && address[size - 1] == ']') {
        address++;
        size -= 2;
    }
    if (!size || size >= sizeof(host) || port < 0 || port > 65535 || *end)
        return err_set(e, ERR_INVALID_ARGUMENT, "relay '%.128s': expected HOST:PORT or [V6]:PORT",
                       address ? address : "");
    memcpy(host, address, size);
    host[size] = '\0';
    /* Nodes connect to this address, so it must name a host: the address of "all interfaces" does not. */
    if (!strcmp(host, "0.0.0.0") || !strcmp(host, "::") || !strcmp(host, "*"))
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "relay '%s': expected the HOST:PORT at which the nodes reach this machine", host);
    if (tcp_bind_host(&s->listener, host, (uint16_t)port, e))
        return err_wrap(e, "relay %s:%ld", host, port);
    if (listen(s->listener, BACKLOG))
        return err_sys(e, errno, "relay %s:%ld", host, port);
    return ERR_OK;
}

/* A link has two descriptors, and the daemon needs some as well. */
static size_t links_allowed(size_t wanted)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur / 4 >= wanted)
        return wanted;
    return files.rlim_cur >= 4 ? files.rlim_cur / 4 : 1;
}

static void options_complete(struct relay_options *o)
{
    o->address = NULL; /* borrowed */
    o->links = links_allowed(o->links ? o->links : 1024);
    o->strangers = o->strangers ? o->strangers : 256;
    o->hello_ms = o->hello_ms ? o->hello_ms : 5000;
    o->wait_ms = o->wait_ms ? o->wait_ms : 60000;
    o->flush_ms = o->flush_ms ? o->flush_ms : 10000;
}

/* The thread takes no signals: they belong to the daemon's loop. */
static enum err_code server_start(struct relay_server *s, struct err *e)
{
    sigset_t all, before;
    int why;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    why = pthread_create(&s->thread, NULL, server_run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    s->started = why == 0;
    return why ? err_sys(e, why, "thread of the relay") : ERR_OK;
}

static enum err_code server_prepare(struct relay_server *s, const char *address, struct err *e)
{
    uint32_t listening = 0, waking = 0;

    if (server_listen(s, address, e))
        return e->code;
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->epoll < 0 || s->wake < 0 || !relay_watch_fd(s, s->listener, &s->listener, &listening, EPOLLIN) ||
        !relay_watch_fd(s, s->wake, &s->wake, &waking, EPOLLIN))
        return err_sys(e, errno, "descriptors of the relay");
    return ERR_OK;
}

enum err_code relay_server_open(struct relay_server **out, const struct relay_options *options, struct err *e)
{
    struct relay_server *s = xcalloc(1, sizeof(*s));

    s->options = *options;
    options_complete(&s->options);
    s->listener = s->epoll = s->wake = -1;
    s->scratch = xmalloc(RELAY_PIECE);
    if (server_prepare(s, options->address, e) || server_start(s, e)) {
        relay_server_close(s);
        return e->code;
    }
    *out = s;
    return ERR_OK;
}

void relay_server_close(struct relay_server *s)
{
    uint64_t one = 1;

    if (!s)
        return;
    atomic_store(&s->stop, true);
    if (s->started) {
        BUG_ON(write(s->wake, &one, sizeof(one)) != sizeof(one));
        pthread_join(s->thread, NULL);
    }
    for (enum caller_state state = CALLER_STRANGER; state < CALLER_CLOSED; state++)
        while (s->callers[state].first)
            relay_caller_gone(s->callers[state].first);
    closed_free(s);
    close_fd(&s->listener);
    close_fd(&s->epoll);
    close_fd(&s->wake);
    explicit_bzero(s->options.key, sizeof(s->options.key));
    free(s->scratch);
    free(s);
}

uint16_t relay_server_port(const struct relay_server *s)
{
    return tcp_bound_port(s->listener);
}

void relay_server_count(const struct relay_server *s, struct relay_traffic *out)
{
    *out = (struct relay_traffic){
        .bytes = s->bytes,
        .links = s->links,
        .refused = s->refused,
        .links_now = s->links_now,
        .strangers_now = s->strangers_now,
        .buffered_now = s->buffered_now,
    };
}
