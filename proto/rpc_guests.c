#include "proto/rpc_guests.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/mem.h"

#define TABLE_SIZE 4096 /* a power of two */

struct rpc_house {
    struct rpc_origin origin;
    struct rpc_house *chain;       /* in the table */
    struct rpc_house *prev, *next; /* the ring of those with strangers; NULL: not in it */
    size_t count[RPC_STAGES], total;
    struct rpc_guest *first[RPC_STAGES], *last[RPC_STAGES];
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

void rpc_guests_init(struct rpc_guests *guests, const struct rpc_limits *limits, uint64_t seed)
{
    *guests = (struct rpc_guests){
        .limits = *limits, .seed = seed, .table = xcalloc(TABLE_SIZE, sizeof(struct rpc_house *))};
}

void rpc_guests_release(struct rpc_guests *guests)
{
    BUG_ON(guests->total);
    free(guests->table);
    *guests = (struct rpc_guests){0};
}

static struct rpc_house **house_slot(const struct rpc_guests *guests, const struct rpc_origin *origin)
{
    uint64_t hash = guests->seed;
    struct rpc_house **slot;

    for (size_t i = 0; i < sizeof(origin->bytes); i++)
        hash = (hash ^ origin->bytes[i]) * 0x100000001b3u;
    slot = &guests->table[(hash ^ hash >> 32) & (TABLE_SIZE - 1)];
    while (*slot && memcmp(&(*slot)->origin, origin, sizeof(*origin)) != 0)
        slot = &(*slot)->chain;
    return slot;
}

static struct rpc_house *house_open(struct rpc_guests *guests, const struct rpc_origin *origin)
{
    struct rpc_house **slot = house_slot(guests, origin);

    if (!*slot) {
        *slot = xcalloc(1, sizeof(**slot));
        (*slot)->origin = *origin;
    }
    return *slot;
}

static size_t house_strangers(const struct rpc_house *house)
{
    return house->total - house->count[RPC_ADMITTED];
}

size_t rpc_guests_strangers(const struct rpc_guests *guests)
{
    return guests->total - guests->count[RPC_ADMITTED];
}

static void ring_insert(struct rpc_guests *guests, struct rpc_house *house)
{
    if (guests->turn) { /* behind all others */
        house->next = guests->turn;
        house->prev = guests->turn->prev;
        house->prev->next = house->next->prev = house;
    } else {
        house->prev = house->next = guests->turn = house;
    }
    guests->ring_count++;
}

static void ring_remove(struct rpc_guests *guests, struct rpc_house *house)
{
    if (guests->turn == house)
        guests->turn = house->next == house ? NULL : house->next;
    house->prev->next = house->next;
    house->next->prev = house->prev;
    house->prev = house->next = NULL;
    guests->ring_count--;
}

/* After every change of its numbers: keeps the ring true, and ends one that is empty. */
static void house_settle(struct rpc_guests *guests, struct rpc_house *house)
{
    const bool wanted = house_strangers(house) > 0;

    if (wanted && !house->next)
        ring_insert(guests, house);
    else if (!wanted && house->next)
        ring_remove(guests, house);
    if (house->total == 0) {
        *house_slot(guests, &house->origin) = house->chain;
        free(house);
    }
}

static void guest_link(struct rpc_guests *guests, struct rpc_guest *guest, enum rpc_stage stage)
{
    struct rpc_house *house = guest->house;

    guest->stage = stage;
    guest->next = NULL;
    guest->prev = house->last[stage];
    if (guest->prev)
        guest->prev->next = guest;
    else
        house->first[stage] = guest;
    house->last[stage] = guest;
    house->count[stage]++;
    guests->count[stage]++;
}

static void guest_unlink(struct rpc_guests *guests, struct rpc_guest *guest)
{
    struct rpc_house *house = guest->house;

    if (guest->prev)
        guest->prev->next = guest->next;
    else
        house->first[guest->stage] = guest->next;
    if (guest->next)
        guest->next->prev = guest->prev;
    else
        house->last[guest->stage] = guest->prev;
    house->count[guest->stage]--;
    guests->count[guest->stage]--;
}

void rpc_guests_add(struct rpc_guests *guests, struct rpc_guest *guest, const struct rpc_origin *origin)
{
    guest->house = house_open(guests, origin);
    guest->house->total++;
    guests->total++;
    guest_link(guests, guest, RPC_SILENT);
    house_settle(guests, guest->house);
}

void rpc_guests_move(struct rpc_guests *guests, struct rpc_guest *guest, enum rpc_stage stage)
{
    guest_unlink(guests, guest);
    guest_link(guests, guest, stage);
    house_settle(guests, guest->house);
}

void rpc_guests_put_first(struct rpc_guests *guests, struct rpc_guest *guest)
{
    struct rpc_house *house = guest->house;

    if (house->first[guest->stage] == guest)
        return;
    guest_unlink(guests, guest);
    guest->prev = NULL;
    guest->next = house->first[guest->stage];
    if (guest->next)
        guest->next->prev = guest;
    else
        house->last[guest->stage] = guest;
    house->first[guest->stage] = guest;
    house->count[guest->stage]++;
    guests->count[guest->stage]++;
}

void rpc_guests_remove(struct rpc_guests *guests, struct rpc_guest *guest)
{
    struct rpc_house *house = guest->house;

    guest_unlink(guests, guest);
    guests->total--;
    house->total--;
    guest->house = NULL;
    house_settle(guests, house);
}

/* ---- who goes ---- */

static struct rpc_guest *house_victim(const struct rpc_house *house)
{
    for (int stage = RPC_SILENT; stage < RPC_ADMITTED; stage++)
        if (house->first[stage])
            return house->first[stage];
    return NULL;
}

static const struct rpc_house *house_of_most(const struct rpc_guests *guests, enum rpc_stage stage)
{
    const struct rpc_house *most = NULL, *house = guests->turn;
    size_t record = 0;

    for (size_t i = 0; i < guests->ring_count; i++, house = house->next) {
        /* RPC_STAGES: all but the admitted */
        const size_t count = stage == RPC_STAGES ? house_strangers(house) : house->count[stage];
        if (count > record) {
            record = count;
            most = house;
        }
    }
    return most;
}

struct rpc_guest *rpc_guests_first_of_most(const struct rpc_guests *guests, enum rpc_stage stage)
{
    const struct rpc_house *house = house_of_most(guests, stage);

    return house ? house->first[stage] : NULL;
}

struct rpc_guest *rpc_guests_in_the_way(const struct rpc_guests *guests, const struct rpc_origin *origin,
                                        bool *full)
{
    const struct rpc_limits *limits = &guests->limits;
    const struct rpc_house *here = *house_slot(guests, origin), *most;

    *full = false;
    if (here &&
        (here->total >= limits->per_address || house_strangers(here) >= limits->strangers_per_address)) {
        *full = house_strangers(here) == 0;
        return house_victim(here);
    }
    if (guests->total < limits->total && rpc_guests_strangers(guests) < limits->strangers)
        return NULL;
    most = house_of_most(guests, RPC_STAGES);
    *full = !most;
    return most ? house_victim(most) : NULL;
}

struct rpc_guest *rpc_guests_next(struct rpc_guests *guests)
{
    struct rpc_house *house = guests->turn;

    for (size_t i = 0; i < guests->ring_count; i++, house = house->next) {
        if (house->first[RPC_SPOKEN]) {
            guests->turn = house->next;
            return house->first[RPC_SPOKEN];
        }
    }
    return NULL;
}
