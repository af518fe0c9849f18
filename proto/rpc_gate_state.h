#ifndef DDP_PROTO_RPC_GATE_STATE_H
#define DDP_PROTO_RPC_GATE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "proto/rpc_connections.h"
#include "proto/rpc_gate.h"

/* The state that the gate's parts share: rpc_gate.c (life, and the questions of the server's thread),
 * rpc_gate_run.c (the gate's thread) and rpc_relay.c (one connection). Inside proto/ only.
 *
 * gate.lock protects connections, the table by number, and the report. All other fields belong to the gate's
 * thread once it runs. */

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

struct rpc_relay;
struct rpc_gate {
    pthread_mutex_t lock;
    struct rpc_connections connections;
    struct rpc_relay *table[RPC_GATE_TABLE];
    struct rpc_traffic report;
    double handovers; /* how many more are allowed now; under the lock */

    struct rpc_tcp_listener *listeners;
    char *dir;
    bool own_dir;
    char prefix[32]; /* of the abstract names: nobody else can guess them */
    pthread_t thread;
    bool started;
    int epoll;
    struct rpc_gate_socket wake;
    atomic_bool shut, stop;

    /* the gate's thread's own */
    struct rpc_relay *relays, *tracked, *closed;
    uint64_t last_number;
    int spare_fd;
    bool listeners_closed;
    /* since the last check a connection was refused that may be an agent's; under the lock */
    bool refused_agent;
    _Atomic int64_t checked_ms;
    int64_t timeouts_ms, filled_ms, logged_ms, refusal_logged_ms, stop_ms;
    uint64_t unlogged, unlogged_refusals; /* drops, refusals */
    uint8_t *scratch;
};

#endif
