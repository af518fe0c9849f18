#ifndef DDP_DAEMON_RELAY_RELAY_STATE_H
#define DDP_DAEMON_RELAY_RELAY_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "daemon/relay/relay_server.h"

/* The state that relay_server.c (life, thread, accepting) and relay_caller.c (one connection) share. All of it belongs to
 * the relay's thread, except the counters. Inside this folder only. */

#define RELAY_PIECE                                                                                          \
    ((size_t)64 * 1024) /* the most bytes that are read at a time, and kept for one connection */

enum caller_state {
    CALLER_STRANGER, /* has not shown a ticket */
    CALLER_WAITING,  /* its peer has not come */
    CALLER_LINKED,
    CALLER_ENDING, /* its peer has closed; the last bytes are still to be sent to it */
    CALLER_CLOSED, /* freed at the end of the turn, since epoll may have returned an event for it */
    CALLER_STATES,
};

struct relay_caller {
    struct relay_server *server;
    struct relay_caller *prev, *next; /* of the same state, oldest first */
    struct relay_caller *peer;        /* linked: the other end */
    enum caller_state state;
    int fd;
    uint32_t events;  /* that epoll waits for */
    int64_t since_ms; /* since when it is in this state */
    uint8_t nonce[RELAY_NONCE], in[RELAY_HELLO];
    size_t got; /* bytes of `in` */
    struct relay_hello hello;
    uint8_t *unsent; /* bytes that the peer sent and this end has not taken; NULL: none */
    size_t unsent_at, unsent_len;
};

struct caller_list {
    struct relay_caller *first, *last;
    size_t count;
};

struct relay_server {
    struct relay_options options;
    pthread_t thread;
    bool started;
    int listener, epoll, wake;
    atomic_bool stop;
    int64_t accept_at; /* no connection is accepted before this time; 0: accepting */
    int64_t logged_ms; /* when the last refused connection was logged */
    struct caller_list callers[CALLER_STATES];
    uint8_t *scratch; /* RELAY_PIECE bytes */
    _Atomic uint64_t bytes, links, refused, links_now, strangers_now, buffered_now;
};

void relay_caller_open(struct relay_server *server, int fd);     /* takes fd over */
void relay_caller_drop(struct relay_caller *c, const char *why); /* not admitted: counts, and may log */
void relay_caller_handle(struct relay_caller *c, uint32_t events);
void relay_caller_gone(struct relay_caller *c); /* closes it, and its peer when that has its last bytes */
bool relay_watch_fd(struct relay_server *server, int fd, void *data, uint32_t *now, uint32_t events);

#endif
