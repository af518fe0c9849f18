#ifndef DDP_PROTO_RPC_GUESTS_H
#define DDP_PROTO_RPC_GUESTS_H

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

struct rpc_house; /* all connections of one origin */
struct rpc_guest {
    struct rpc_house *house;
    struct rpc_guest *prev, *next; /* of the same house and stage, oldest first */
    enum rpc_stage stage;
};

struct rpc_guests {
    struct rpc_limits limits;
    size_t count[RPC_STAGES], total;
    uint64_t seed;
    struct rpc_house **table;
    struct rpc_house *turn; /* whose connection is handed over next; a ring of all with strangers */
    size_t ring_count;
};

void rpc_guests_init(struct rpc_guests *guests, const struct rpc_limits *limits, uint64_t seed);
void rpc_guests_release(struct rpc_guests *guests); /* all guests are removed before */

/* The guest to drop before another may come from this origin. NULL: none; with *full, it may not come in. */
struct rpc_guest *rpc_guests_in_the_way(const struct rpc_guests *guests, const struct rpc_origin *origin,
                                        bool *full);
void rpc_guests_add(struct rpc_guests *guests, struct rpc_guest *guest, const struct rpc_origin *origin);
void rpc_guests_move(struct rpc_guests *guests, struct rpc_guest *guest, enum rpc_stage stage);
/* The next guest of the same stage and house to drop. */
void rpc_guests_put_first(struct rpc_guests *guests, struct rpc_guest *guest);
void rpc_guests_remove(struct rpc_guests *guests, struct rpc_guest *guest);
size_t rpc_guests_strangers(const struct rpc_guests *guests);

/* The next guest to hand to gRPC: origins take turns, and each hands over its oldest. NULL: none. */
struct rpc_guest *rpc_guests_next(struct rpc_guests *guests);
/* The first guest in this stage, of the house that has most guests in this stage; NULL: none. */
struct rpc_guest *rpc_guests_first_of_most(const struct rpc_guests *guests, enum rpc_stage stage);

#endif
