#ifndef DDP_TESTS_UNIT_AGENT_WISHES_H
#define DDP_TESTS_UNIT_AGENT_WISHES_H

#include "daemon/agent/wish.h"

/* Small wishes for tests, in static memory. */

static inline Ddp__V1__SpawnWish spawn_wish(int64_t spawn, int rank, Ddp__V1__StopMode stop)
{
    Ddp__V1__SpawnWish s = DDP__V1__SPAWN_WISH__INIT;

    s.spawn = spawn;
    s.rank = s.local_rank = rank;
    s.generation = 1;
    s.stop = stop;
    return s;
}

static inline Ddp__V1__GroupWish group_wish(int64_t job, Ddp__V1__SpawnWish **spawns, size_t count)
{
    Ddp__V1__GroupWish g = DDP__V1__GROUP_WISH__INIT;

    g.job = job;
    g.generation = 1;
    g.lease_ms = 60000;
    g.grace_ms = 30000;
    g.local_world_size = g.world_size = (int)count;
    g.node_count = 1;
    g.spawns = spawns;
    g.n_spawns = count;
    return g;
}

static inline Ddp__V1__Wish wish_of(int64_t epoch, int64_t revision, Ddp__V1__GroupWish **groups,
                                    size_t count)
{
    Ddp__V1__Wish w = DDP__V1__WISH__INIT;

    w.cluster_id = (char *)"c1";
    w.epoch = epoch;
    w.revision = revision;
    w.groups = groups;
    w.n_groups = count;
    return w;
}

#endif
