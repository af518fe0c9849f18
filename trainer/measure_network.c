#include "trainer/measure_network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/device/comm.h"
#include "trainer/measure.h"

#define ROUNDS_MOST 4 /* this many partners are enough to tell whether a node is slow */
#define WINDOWS 5     /* in a round */
/* Sizes of an all-reduce. All ranks use the same one, because small arrays have lower rates. */
#define HOST_FLOATS ((size_t)256 << 10)
#define AWAY_FLOATS ((size_t)8 << 20)
#define CALLS_MOST 10000 /* in a window */

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

/* ---- a pair */

/* What ranks tell each other before a round. */
struct network_hello {
    uint8_t address[COLL_MAX_ADDRESS], id[COLL_MAX_ADDRESS];
    size_t address_size, id_size;
};
struct node_pair {
    struct coll_group *group;
    struct device *device;
    float *data; /* zeros: they stay zero however often they are added up */
    size_t floats;
    int rank; /* 0 or 1 */
    double slower;
};

static enum err_code node_pair_open(struct trainer *t, struct coll_listener *l,
                                    const struct network_hello *hellos, int mate, struct node_pair *out,
                                    struct err *e)
{
    const struct formation *f = &t->formation;
    struct device *device = t->engine.device;
    const int first = f->rank < mate ? f->rank : mate, second = f->rank < mate ? mate : f->rank;
    const struct coll_peer peers[2] = {{0, 0, 0, hellos[first].address, hellos[first].address_size},
                                       {1, 1, 0, hellos[second].address, hellos[second].address_size}};
    struct coll_relay relay;
    *out = (struct node_pair){
        .device = device, .floats = device->host ? HOST_FLOATS : AWAY_FLOATS, .rank = f->rank == second};
    struct coll_config config = {
        .job = link_place(t->link)->job,
        .generation = f->info.generation,
        .rank = out->rank,
        .world_size = 2,
        .peers = peers,
        .bootstrap = hellos[first].id,
        .bootstrap_size = hellos[first].id_size,
        .loopback = f->info.loopback,
        .free_order = t->spec->reproducible == REPRODUCIBLE_NONE,
        .device = device,
        .relay = formation_find_relay(f, &relay),
        .timeout_ms = formation_connect_ms(2, false),
    };
    memcpy(config.key, f->info.key, sizeof(config.key));
    enum err_code code = coll_open(&out->group, l, &config, e);
    explicit_bzero(config.key, sizeof(config.key));
    return code ? code : coll_alloc(out->group, out->floats, &out->data, e);
}

/* The process must not touch the device again if its collectives did not end. */
static void node_pair_close(struct node_pair *p)
{
    struct err e;
    if (p->group && coll_end(p->group, &e)) {
        log_error("device_stuck", "why=%s", LOG_Q(e.msg));
        fflush(NULL);
        _exit(EXIT_FAILURE);
    }
    coll_close(p->group);
}

/* The time until both ranks have ended `calls` all-reduces. */
static enum err_code node_pair_time(struct node_pair *p, int64_t calls, int64_t *took, struct err *e)
{
    if (coll_barrier(p->group, e))
        return e->code;
    const int64_t from = clock_mono_ns();
    for (int64_t i = 0; i < calls; i++)
        if (coll_allreduce(p->group, p->data, p->floats, e))
            return e->code;
    if (p->device->ops->wait(p->device, e))
        return e->code;
    measure_idle(from, p->slower);
    if (coll_barrier(p->group, e))
        return e->code;
    *took = clock_mono_ns() - from;
    return ERR_OK;
}

static int network_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The first call also opens channels. The time of the second call tells how many calls fit into a window. */
static enum err_code node_pair_run(struct node_pair *p, int64_t time_ns, struct network_rates *out,
                                   struct err *e)
{
    double rates[WINDOWS];
    int64_t took, count = 0;
    if (node_pair_time(p, 1, &took, e) || node_pair_time(p, 1, &took, e))
        return e->code;
    const int64_t until = clock_mono_ns() + time_ns, fit = time_ns / WINDOWS / (took > 0 ? took : 1);
    while (count < WINDOWS) {
        /* Rank 0 decides for both. On a very slow link one call may take all the time. */
        int64_t calls = count && clock_mono_ns() >= until ? 0
                        : fit < 1                         ? 1
                        : fit > CALLS_MOST                ? CALLS_MOST
                                                          : fit;
        if (coll_broadcast(p->group, &calls, sizeof(calls), 0, e))
            return e->code;
        if (!calls)
            break;
        if (node_pair_time(p, calls, &took, e))
            return e->code;
        rates[count++] = (double)(calls * (int64_t)(p->floats * sizeof(float))) / ((double)took * 1e-9);
    }
    qsort(rates, (size_t)count, sizeof(double), network_compare);
    out->median = rates[count / 2];
    out->best = rates[count - 1];
    return ERR_OK;
}

/* ---- all of them */

static enum err_code network_say_hello(struct trainer *t, const struct coll_listener *l, int mate,
                                       struct network_hello *hellos, struct err *e)
{
    const struct comm_ops *comm = t->engine.device->comm;
    struct network_hello mine = {0};
    mine.address_size = coll_listener_address(l, mine.address, sizeof(mine.address));
    if (comm && mate > t->formation.rank && comm->make_id(2, mine.id, sizeof(mine.id), &mine.id_size, e))
        return e->code;
    return coll_allgather(t->formation.group, &mine, sizeof(mine), hellos, e);
}

static enum err_code network_round(struct trainer *t, struct coll_listener *l, int mate, int64_t time_ns,
                                   double slower, struct network_rates *best, struct err *e)
{
    const struct link_peer *peers = t->formation.info.peers;
    struct network_hello *hellos = xcalloc((size_t)t->formation.world_size, sizeof(*hellos));
    struct network_rates rates = {0};
    struct node_pair pair = {0};
    enum err_code code = network_say_hello(t, l, mate, hellos, e);
    if (!code && mate >= 0) {
        code = node_pair_open(t, l, hellos, mate, &pair, e);
        pair.slower = slower;
        if (!code)
            code = node_pair_run(&pair, time_ns, &rates, e);
        if (code)
            code = err_wrap(e, "all-reduce of %s with %s", peers[t->formation.rank].node, peers[mate].node);
        node_pair_close(&pair);
    }
    free(hellos);
    if (code || mate < 0)
        return code;
    best->median = rates.median > best->median ? rates.median : best->median;
    best->best = rates.best > best->best ? rates.best : best->best;
    return ERR_OK;
}

enum err_code network_measure(struct trainer *t, double slower, struct network_rates *out, struct err *e)
{
    const struct formation *f = &t->formation;
    struct coll_listener *l;
    int nodes = 0;
    *out = (struct network_rates){0};
    for (int r = 0; f->info.peers && r < f->world_size; r++)
        nodes = f->info.peers[r].node_rank >= nodes ? f->info.peers[r].node_rank + 1 : nodes;
    if (nodes < 2)
        return ERR_OK;
    if ((t->engine.device->comm && coll_end(f->group, e)) ||
        coll_listen(&l, link_place(t->link)->address, NULL, e))
        return e->code;
    const int all = network_rounds(nodes), rounds = all < ROUNDS_MOST ? all : ROUNDS_MOST;
    enum err_code code = ERR_OK;
    for (int round = 0; round < rounds && !code; round++)
        code = network_round(t, l, network_find_mate(t, nodes, round), t->spec->measure_ms * 1000000 / rounds,
                             slower, out, e);
    coll_listener_free(l);
    return code;
}
