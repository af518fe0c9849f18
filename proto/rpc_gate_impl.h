#ifndef DDP_PROTO_RPC_GATE_IMPL_H
#define DDP_PROTO_RPC_GATE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "proto/rpc_frames.h"
#include "proto/rpc_gate.h"
#include "proto/rpc_connections.h"

/* The gate's parts: rpc_gate.c (life, and what the server's thread asks), rpc_gate_run.c (the thread:
 * accepts, hands over, looks around) and rpc_relay.c (one connection).
 *
 * gate.lock protects connections, the table by number, and the report. All other fields of a relay belong to the
 * gate's thread. */

#define RPC_GATE_SCRATCH ((size_t)64 * 1024)
#define RPC_GATE_TABLE 4096     /* a power of two */
#define RPC_GATE_LATE_MS 250    /* if the periodic check is later than this, the time counts as deaf */
#define RPC_GATE_HANDOVER_TLS 5 /* cost of a TLS handshake, in plain-text handovers */

enum rpc_gate_socket_kind { RPC_SOCKET_WAKE, RPC_SOCKET_LISTENER, RPC_SOCKET_TCP, RPC_SOCKET_BACK };
struct rpc_gate_socket { /* the data of an epoll entry */
    enum rpc_gate_socket_kind kind;
    int fd;
    uint32_t events;
    void *owner;
};

struct rpc_tcp_listener { /* a TCP address, and the unix socket where gRPC serves its connections */
    struct rpc_tcp_listener *next;
    struct rpc_gate_socket sockets[4]; /* a name may stand for several addresses */
    size_t socket_count;
    int order;
    bool tls;
    char *path;
};

struct rpc_pipe { /* bytes that were read and not written yet */
    uint8_t *data;
    size_t len, ready; /* ready: may be written; the rest exceeds a limit and waits */
    bool eof;          /* nothing more will be read */
};

struct rpc_relay {
    struct rpc_connection connection;
    struct rpc_gate *gate;
    struct rpc_tcp_listener *listener;
    struct rpc_relay *chain;       /* by number */
    struct rpc_relay *prev, *next; /* all of the gate */
    struct rpc_relay *tracked_prev, *tracked_next;
    uint64_t number;
    struct rpc_gate_socket tcp, back; /* back: the end towards gRPC; -1 before the handover */
    struct rpc_frames frames;
    struct rpc_pipe up, down; /* up: to gRPC */
    int64_t since_ms;         /* accepted, then handover over */
    int64_t ending_ms;        /* gRPC has closed it and the client still reads; 0: no */
    int64_t unread_ms;        /* since when gRPC has not read the same bytes; 0: it reads */
    bool fed;                 /* got bytes since the last look */
    bool tracked, is_closed, shut;
    bool refused; /* under the lock: a call of it was */
    atomic_bool admitted;
    char address[64];
};

struct rpc_gate {
    pthread_mutex_t lock;
    struct rpc_connections connections;
    struct rpc_relay *table[RPC_GATE_TABLE];
    struct rpc_traffic report;
    double handovers; /* how many may be handover over now; under the lock */

    struct rpc_tcp_listener *listeners;
    char *dir;
    bool own_dir;
    char prefix[32]; /* of the abstract names: nobody else can guess them */
    pthread_t thread;
    bool started;
    int epoll;
    struct rpc_gate_socket wake;
    atomic_bool shut, stop;

    /* the thread's */
    struct rpc_relay *relays, *tracked, *closed;
    uint64_t last_number;
    int spare_fd;
    bool listeners_closed;
    bool refused_agent; /* a connection that may be an agent's was refused since the last look; under the lock */
    _Atomic int64_t checked_ms;
    int64_t timeouts_ms, filled_ms, logged_ms, stop_ms;
    uint64_t unlogged;
    uint8_t *scratch;
};

/* rpc_relay.c. Functions that return bool return false when the relay must be closed. */
struct rpc_relay *relay_open(struct rpc_gate *gate, struct rpc_tcp_listener *listener, int fd);
void relay_close(struct rpc_relay *relay, bool reset); /* freed at the end of the turn */
void relay_free(struct rpc_relay *relay);
bool relay_read_first(struct rpc_relay *relay, enum rpc_stage *stage); /* its first bytes, and how far it got */
enum relay_handover { RELAY_HANDED_OVER, RELAY_LATER, RELAY_FAILED };
enum relay_handover relay_hand_over(struct rpc_relay *relay, int64_t now);
bool relay_carry(struct rpc_relay *relay, bool up, bool down,
                 int64_t now); /* those of the two ways that may move */
void relay_track_unread(struct rpc_relay *relay, bool wanted);
bool relay_is_unread(struct rpc_relay *relay,
                      int64_t now); /* whether gRPC leaves its bytes lying; see unread */

/* rpc_gate_run.c */
double relay_handover_cost(const struct rpc_relay *relay); /* of handing it over */
void *gate_run(void *gate);
void gate_log_drop(struct rpc_gate *gate, const struct rpc_relay *relay, const char *why);
bool gate_socket_set_events(struct rpc_gate *gate, struct rpc_gate_socket *sock, uint32_t events);

#endif
