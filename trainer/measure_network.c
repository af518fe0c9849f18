#include "trainer/measure_network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/device/comm.h"

/* The job's time limit is 120 s and three times the time of measuring (client/diagnose/deep_run.c): once for the devices, and at most
 * twice for the nodes. */
#define ROUNDS_MS 45000 /* no round begins later, in addition to the time of measuring */
#define CONNECT_MS 10000
#define COMM_MS 10000 /* in addition, for the device's own collectives */
#define PAIR_MS 10000 /* for measuring, in addition to twice its time */

/* ---- which nodes are paired in a round */

int network_rounds(int nodes)
{
    return nodes < 2 ? 0 : nodes % 2 ? nodes : nodes - 1;
}

/* The circle method: one node stays, the others move on by one place each round. */
int network_partner(int node, int nodes, int round)
{
    const int moving = network_rounds(nodes);
    const int other = node == moving  ? round
                      : node == round ? moving
                                      : (2 * round - node + 2 * moving) % moving;
    return other < nodes ? other : -1;
}

/* The rank that this one is paired with; -1: none. */
static int network_find_mate(const struct trainer *t, int nodes, int round)
{
    const struct formation *f = &t->formation;
    const struct link_peer *peers = f->info.peers, *own = &peers[f->rank];
    const int node = network_partner(own->node_rank, nodes, round);
    if (node < 0 || (t->engine.device->host && own->local_rank))
        return -1;
    for (int r = 0; r < f->world_size; r++)
        if (peers[r].node_rank == node && peers[r].local_rank == own->local_rank)
            return r;
    return -1;
}

/* ---- a round */

/* What ranks tell each other before a round. */
struct network_hello {
    uint8_t address[COLL_MAX_ADDRESS], id[COLL_MAX_ADDRESS];
    size_t address_size, id_size;
    bool enough; /* rank 0: the time is over */
};
struct network_plan {
    int nodes, rounds;
    int64_t until_ms, pair_ns;
    double slower;
};

static enum err_code network_say_hello(struct trainer *t, const struct coll_listener *l, int mate,
                                       bool enough, struct network_hello *hellos, struct err *e)
{
    const struct comm_ops *comm = t->engine.device->comm;
    struct network_hello mine = {.enough = enough};
    mine.address_size = coll_listener_address(l, mine.address, sizeof(mine.address));
    if (comm && mate > t->formation.rank && comm->make_id(2, mine.id, sizeof(mine.id), &mine.id_size, e))
        return e->code;
    if (coll_allgather(t->formation.group, &mine, sizeof(mine), hellos, e))
        return e->code;
    for (int r = 0; r < t->formation.world_size; r++)
        if (hellos[r].address_size > sizeof(mine.address) || hellos[r].id_size > sizeof(mine.id))
            return err_set(e, ERR_INTERNAL, "rank %d sends an address of %zu bytes and an id of %zu bytes", r,
                           hellos[r].address_size, hellos[r].id_size);
    return ERR_OK;
}

static enum err_code network_measure_pair(struct trainer *t, const struct network_plan *plan, int round,
                                          struct coll_listener *l, const struct network_hello *hellos,
                                          int mate, struct pair_rate *out, struct err *e)
{
    const struct formation *f = &t->formation;
    struct device *device = t->engine.device;
    const int first = f->rank < mate ? f->rank : mate, second = f->rank < mate ? mate : f->rank;
    const struct coll_peer peers[2] = {{0, 0, 0, hellos[first].address, hellos[first].address_size},
                                       {1, 1, 0, hellos[second].address, hellos[second].address_size}};
    struct coll_relay relay;
    struct node_pair_config config = {
        .group = {.job = link_place(t->link)->job,
                  .generation = f->info.generation,
                  .rank = f->rank == second,
                  .world_size = 2,
                  .peers = peers,
                  .bootstrap = hellos[first].id,
                  .bootstrap_size = hellos[first].id_size,
                  .loopback = f->info.loopback,
                  .free_order = t->spec->reproducible == REPRODUCIBLE_NONE,
                  .device = device,
                  .relay = formation_find_relay(f, &relay),
                  .timeout_ms = CONNECT_MS + (device->comm ? COMM_MS : 0)},
        .listener = l,
        .generation = f->group,
        .time_ns = plan->pair_ns,
        .slower = plan->slower,
    };
    config.limit_ms = config.group.timeout_ms + PAIR_MS + 2 * plan->pair_ns / 1000000;
    node_pair_make_key(config.group.key, f->info.key, round, first, second);
    const enum err_code code = node_pair_measure(&config, out, e);
    explicit_bzero(config.group.key, sizeof(config.group.key));
    return code;
}

/* Each round has a listener of its own, because the limit of a pair aborts its listener. *enough: no round is made any more. */
static enum err_code network_round(struct trainer *t, const struct network_plan *plan, int round,
                                   struct network_partners *out, bool *enough, struct err *e)
{
    const struct formation *f = &t->formation;
    const int mate = network_find_mate(t, plan->nodes, round);
    struct coll_listener *l;
    if (coll_listen(&l, link_place(t->link)->address, NULL, e))
        return e->code;
    struct network_hello *hellos = xcalloc((size_t)f->world_size, sizeof(*hellos));
    enum err_code code = network_say_hello(t, l, mate, clock_boot_ms() >= plan->until_ms, hellos, e);
    *enough = !code && hellos[0].enough;
    if (!code && !*enough && mate >= 0) {
        struct network_partner *p = &out->list[out->count++];
        struct err failed;
        *p = (struct network_partner){.rank = mate};
        /* If the generation is over, the next exchange of all ranks returns that. */
        if (network_measure_pair(t, plan, round, l, hellos, mate, &p->rate, &failed)) {
            p->rate = (struct pair_rate){0};
            /* The pair's group numbers its own ranks. */
            snprintf(p->why, sizeof(p->why),
                     "%.255s (in this pair, rank 0 is rank %d of the job and rank 1 is rank %d)", failed.msg,
                     f->rank < mate ? f->rank : mate, f->rank < mate ? mate : f->rank);
            log_warn("pair_failed", "rank=%d partner=%d why=%s", f->rank, mate, LOG_Q(failed.msg));
        }
    }
    free(hellos);
    coll_listener_free(l);
    return code;
}

enum err_code network_check_partners(struct network_partners *all, int ranks, struct err *e)
{
    for (int r = 0; r < ranks; r++) {
        if (all[r].count < 0 || all[r].count > NETWORK_PARTNERS)
            return err_set(e, ERR_INTERNAL, "rank %d reports %d partners", r, all[r].count);
        for (int i = 0; i < all[r].count; i++)
            all[r].list[i].why[sizeof(all[r].list[i].why) - 1] = '\0';
    }
    return ERR_OK;
}

enum err_code network_measure(struct trainer *t, double slower, struct network_partners *out, struct err *e)
{
    const struct formation *f = &t->formation;
    struct network_plan plan = {.slower = slower};
    *out = (struct network_partners){0};
    for (int r = 0; f->info.peers && r < f->world_size; r++)
        if (f->info.peers[r].node_rank >= plan.nodes)
            plan.nodes = f->info.peers[r].node_rank + 1;
    if (plan.nodes < 2)
        return ERR_OK;
    if (t->engine.device->comm && coll_leave_device(f->group, e))
        return e->code;
    const int all = network_rounds(plan.nodes);
    plan.rounds = all < NETWORK_PARTNERS ? all : NETWORK_PARTNERS;
    plan.pair_ns = t->spec->measure_ms * 1000000 / plan.rounds;
    plan.until_ms = clock_boot_ms() + t->spec->measure_ms + ROUNDS_MS;
    bool enough = false;
    for (int round = 0; round < plan.rounds && !enough; round++)
        if (network_round(t, &plan, round, out, &enough, e))
            return e->code;
    return ERR_OK;
}
