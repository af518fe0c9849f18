#ifndef DDP_PROTO_RPC_CONNECTIONS_H
#define DDP_PROTO_RPC_CONNECTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/rpc_limits.h"

struct sockaddr;

/* The connections to a server's TCP ports, by origin and stage. This module decides which new connections may
 * come in and which old ones are dropped for them. Admitted connections are never dropped. Otherwise the
 * origin with the most connections loses one: first one in the earliest stage, then the oldest. So a flood
 * from one address displaces its own connections, and silent ones before those that have sent something.
 *
 * No I/O, no clock, no lock of its own. */

enum rpc_stage {
    RPC_SILENT,   /* has sent nothing */
    RPC_GREETED,  /* speaks HTTP/2 and was answered, but has made no request yet */
    RPC_SPOKEN,   /* has made a request, and waits to be handed to gRPC */
    RPC_TRIED,    /* was handed to gRPC; none of its calls was admitted yet */
    RPC_ADMITTED, /* showed a valid token, certificate or other credential */
    RPC_STAGES
};

struct rpc_origin { /* an IPv4 address, or an IPv6 /64 network: its owner can use all its addresses */
    uint8_t bytes[16];
};
struct rpc_origin rpc_origin_of(const struct sockaddr *address);

struct rpc_origin_group; /* all connections of one origin */
struct rpc_connection {
    struct rpc_origin_group *group;
    struct rpc_connection *prev, *next; /* of the same group and stage, oldest first */
    enum rpc_stage stage;
};

struct rpc_connections {
    struct rpc_limits limits;
    size_t count[RPC_STAGES], total;
    uint64_t seed;
    struct rpc_origin_group **table;
    struct rpc_origin_group
        *turn; /* hands over next; a ring of all groups that have unauthenticated connections */
    size_t ring_count;
};

void rpc_connections_init(struct rpc_connections *connections, const struct rpc_limits *limits,
                          uint64_t seed);
void rpc_connections_release(struct rpc_connections *connections); /* all connections are removed before */

/* The connection to drop before another may come from this origin. NULL: nothing to drop; if
 * *full is then true, refuse the new connection. */
struct rpc_connection *rpc_connections_find_victim(const struct rpc_connections *connections,
                                                   const struct rpc_origin *origin, bool *full);
void rpc_connections_add(struct rpc_connections *connections, struct rpc_connection *connection,
                         const struct rpc_origin *origin);
void rpc_connections_move(struct rpc_connections *connections, struct rpc_connection *connection,
                          enum rpc_stage stage);
/* Makes this connection the next one to be dropped in its stage and group. */
void rpc_connections_move_front(struct rpc_connections *connections, struct rpc_connection *connection);
void rpc_connections_remove(struct rpc_connections *connections, struct rpc_connection *connection);
size_t rpc_connections_unauthenticated(const struct rpc_connections *connections);

/* The next connection to hand to gRPC: origins take turns, and each hands over its oldest. NULL: none. */
struct rpc_connection *rpc_connections_next_to_hand_over(struct rpc_connections *connections);
/* The first connection in this stage, of the group that has most connections in this stage; NULL: none. */
struct rpc_connection *rpc_connections_first_of_largest(const struct rpc_connections *connections,
                                                        enum rpc_stage stage);

#endif
