#include "proto/rpc_connections.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/mem.h"

#define TABLE_SIZE 4096 /* a power of two */

struct rpc_origin_group {
    struct rpc_origin origin;
    struct rpc_origin_group *chain; /* in the table */
    struct rpc_origin_group *prev,
        *next; /* the ring of groups with unauthenticated connections; NULL: not in it */
    size_t count[RPC_STAGES], total;
    struct rpc_connection *first[RPC_STAGES], *last[RPC_STAGES];
};

struct rpc_origin rpc_origin_of(const struct sockaddr *address)
{
    struct rpc_origin origin = {0};

    if (address->sa_family == AF_INET) {
        memcpy(origin.bytes, &((const struct sockaddr_in *)address)->sin_addr, 4);
        origin.bytes[15] = 4;
    } else if (address->sa_family == AF_INET6) {
        const struct in6_addr *six = &((const struct sockaddr_in6 *)address)->sin6_addr;
        if (IN6_IS_ADDR_V4MAPPED(six)) {
            memcpy(origin.bytes, six->s6_addr + 12, 4);
            origin.bytes[15] = 4;
        } else {
            memcpy(origin.bytes, six, 8);
            origin.bytes[15] = 6;
        }
    }
    return origin;
}

void rpc_connections_init(struct rpc_connections *connections, const struct rpc_limits *limits, uint64_t seed)
{
    *connections = (struct rpc_connections){
        .limits = *limits, .seed = seed, .table = xcalloc(TABLE_SIZE, sizeof(struct rpc_origin_group *))};
}

void rpc_connections_release(struct rpc_connections *connections)
{
    BUG_ON(connections->total);
    free(connections->table);
    *connections = (struct rpc_connections){0};
}

static struct rpc_origin_group **origin_group_slot(const struct rpc_connections *connections,
                                                   const struct rpc_origin *origin)
{
    uint64_t hash = connections->seed;
    struct rpc_origin_group **slot;

    for (size_t i = 0; i < sizeof(origin->bytes); i++)
        hash = (hash ^ origin->bytes[i]) * 0x100000001b3u;
    slot = &connections->table[(hash ^ hash >> 32) & (TABLE_SIZE - 1)];
    while (*slot && memcmp(&(*slot)->origin, origin, sizeof(*origin)) != 0)
        slot = &(*slot)->chain;
    return slot;
}

static struct rpc_origin_group *origin_group_open(struct rpc_connections *connections,
                                                  const struct rpc_origin *origin)
{
    struct rpc_origin_group **slot = origin_group_slot(connections, origin);

    if (!*slot) {
        *slot = xcalloc(1, sizeof(**slot));
        (*slot)->origin = *origin;
    }
    return *slot;
}

static size_t origin_group_unauthenticated(const struct rpc_origin_group *group)
{
    return group->total - group->count[RPC_ADMITTED];
}

size_t rpc_connections_unauthenticated(const struct rpc_connections *connections)
{
    return connections->total - connections->count[RPC_ADMITTED];
}

static void turn_ring_insert(struct rpc_connections *connections, struct rpc_origin_group *group)
{
    if (connections->turn) { /* the last of all to have its turn */
        group->next = connections->turn;
        group->prev = connections->turn->prev;
        group->prev->next = group->next->prev = group;
    } else {
        group->prev = group->next = connections->turn = group;
    }
    connections->ring_count++;
}

static void turn_ring_remove(struct rpc_connections *connections, struct rpc_origin_group *group)
{
    if (connections->turn == group)
        connections->turn = group->next == group ? NULL : group->next;
    group->prev->next = group->next;
    group->next->prev = group->prev;
    group->prev = group->next = NULL;
    connections->ring_count--;
}

/* After every change of a group's counts: puts it into the ring or takes it out, and frees an empty group. */
static void origin_group_update(struct rpc_connections *connections, struct rpc_origin_group *group)
{
    const bool wanted = origin_group_unauthenticated(group) > 0;

    if (wanted && !group->next)
        turn_ring_insert(connections, group);
    else if (!wanted && group->next)
        turn_ring_remove(connections, group);
    if (group->total == 0) {
        *origin_group_slot(connections, &group->origin) = group->chain;
        free(group);
    }
}

static void connection_link(struct rpc_connections *connections, struct rpc_connection *connection,
                            enum rpc_stage stage)
{
    struct rpc_origin_group *group = connection->group;

    connection->stage = stage;
    connection->next = NULL;
    connection->prev = group->last[stage];
    if (connection->prev)
        connection->prev->next = connection;
    else
        group->first[stage] = connection;
    group->last[stage] = connection;
    group->count[stage]++;
    connections->count[stage]++;
}

static void connection_unlink(struct rpc_connections *connections, struct rpc_connection *connection)
{
    struct rpc_origin_group *group = connection->group;

    if (connection->prev)
        connection->prev->next = connection->next;
    else
        group->first[connection->stage] = connection->next;
    if (connection->next)
        connection->next->prev = connection->prev;
    else
        group->last[connection->stage] = connection->prev;
    group->count[connection->stage]--;
    connections->count[connection->stage]--;
}

void rpc_connections_add(struct rpc_connections *connections, struct rpc_connection *connection,
                         const struct rpc_origin *origin)
{
    connection->group = origin_group_open(connections, origin);
    connection->group->total++;
    connections->total++;
    connection_link(connections, connection, RPC_SILENT);
    origin_group_update(connections, connection->group);
}

void rpc_connections_move(struct rpc_connections *connections, struct rpc_connection *connection,
                          enum rpc_stage stage)
{
    connection_unlink(connections, connection);
    connection_link(connections, connection, stage);
    origin_group_update(connections, connection->group);
}

void rpc_connections_move_front(struct rpc_connections *connections, struct rpc_connection *connection)
{
    struct rpc_origin_group *group = connection->group;

    if (group->first[connection->stage] == connection)
        return;
    connection_unlink(connections, connection);
    connection->prev = NULL;
    connection->next = group->first[connection->stage];
    if (connection->next)
        connection->next->prev = connection;
    else
        group->last[connection->stage] = connection;
    group->first[connection->stage] = connection;
    group->count[connection->stage]++;
    connections->count[connection->stage]++;
}

void rpc_connections_remove(struct rpc_connections *connections, struct rpc_connection *connection)
{
    struct rpc_origin_group *group = connection->group;

    connection_unlink(connections, connection);
    connections->total--;
    group->total--;
    connection->group = NULL;
    origin_group_update(connections, group);
}

/* ---- victims and turns ---- */

static struct rpc_connection *origin_group_victim(const struct rpc_origin_group *group)
{
    for (int stage = RPC_SILENT; stage < RPC_ADMITTED; stage++)
        if (group->first[stage])
            return group->first[stage];
    return NULL;
}

static const struct rpc_origin_group *origin_group_largest(const struct rpc_connections *connections,
                                                           enum rpc_stage stage)
{
    const struct rpc_origin_group *most = NULL, *group = connections->turn;
    size_t record = 0;

    for (size_t i = 0; i < connections->ring_count; i++, group = group->next) {
        /* RPC_STAGES stands for all unauthenticated stages */
        const size_t count = stage == RPC_STAGES ? origin_group_unauthenticated(group) : group->count[stage];
        if (count > record) {
            record = count;
            most = group;
        }
    }
    return most;
}

struct rpc_connection *rpc_connections_first_of_largest(const struct rpc_connections *connections,
                                                        enum rpc_stage stage)
{
    const struct rpc_origin_group *group = origin_group_largest(connections, stage);

    return group ? group->first[stage] : NULL;
}

struct rpc_connection *rpc_connections_find_victim(const struct rpc_connections *connections,
                                                   const struct rpc_origin *origin, bool *full)
{
    const struct rpc_limits *limits = &connections->limits;
    const struct rpc_origin_group *here = *origin_group_slot(connections, origin), *most;

    *full = false;
    /* An address at its limit loses one of its own connections, so that it cannot displace others. */
    if (here && (here->total >= limits->per_address ||
                 origin_group_unauthenticated(here) >= limits->unauthenticated_per_address)) {
        *full = origin_group_unauthenticated(here) == 0;
        return origin_group_victim(here);
    }
    if (connections->total < limits->total &&
        rpc_connections_unauthenticated(connections) < limits->unauthenticated)
        return NULL;
    /* At the limit of the whole port the address with most unauthenticated connections loses one. */
    most = origin_group_largest(connections, RPC_STAGES);
    *full = !most;
    return most ? origin_group_victim(most) : NULL;
}

struct rpc_connection *rpc_connections_next_to_hand_over(struct rpc_connections *connections)
{
    struct rpc_origin_group *group = connections->turn;

    for (size_t i = 0; i < connections->ring_count; i++, group = group->next) {
        if (group->first[RPC_SPOKEN]) {
            connections->turn = group->next; /* round robin: a flood from one address delays only itself */
            return group->first[RPC_SPOKEN];
        }
    }
    return NULL;
}
