#include "daemon/coordinator/service/metrics/usage_rpc.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/coordinator/service/agent_rpc.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/metrics/metrics_recorder.h"
#include "daemon/coordinator/service/pool.h"
#include "daemon/coordinator/service/service_state.h"
#include "proto/rpc_usage.h"

#define SPAWNS_MOST 1024 /* in one message; agents send no more */

/* Uses the coordinator's clock, not the node's, because the points of all ranks share one axis: the seconds since the
 * job was submitted. */
static void usage_record(struct service *s, const struct rank_record *rank, int64_t job,
                         const struct usage *usage)
{
    const int64_t now = clock_wall_ms(), second = (now - core_job(s->core, job)->created_ms) / 1000;
    metrics_recorder_add_usage(s->recorder, job, rank->rank, second > 0 ? second : 0, now, usage);
}

void usage_rpc_receive(struct agent_session *x, const Ddp__V1__UsageReport *m)
{
    CLEANUP(pool_release) struct pool pool = {0};
    struct core_event event = {.kind = CORE_USAGE, .session = x->handle};
    struct err e = {0};
    if (m->n_spawns > SPAWNS_MOST) {
        rpc_call_fail_with(x->rpc, ERR_INVALID_ARGUMENT,
                           "usage of %zu workers in one message: at most %d are allowed", m->n_spawns,
                           SPAWNS_MOST);
        return;
    }
    if (commit_queue_accepts(x->service, &e) != ERR_OK)
        return; /* while the disk is full, the core decides nothing, and points cannot be written */
    struct core_spawn_usage *list = pool_alloc(&pool, m->n_spawns * sizeof *list);
    event.usage.spawns = list;
    for (size_t i = 0; i < m->n_spawns; i++) {
        const Ddp__V1__SpawnUsage *from = m->spawns[i];
        const struct rank_record *rank = core_spawn_rank(x->service->core, from->job, from->spawn);
        /* an agent may report only its own workers */
        if (!from->usage || !rank || strcmp(rank->node, x->node) != 0)
            continue;
        struct core_spawn_usage *to = &list[event.usage.count++];
        *to = (struct core_spawn_usage){.job = from->job, .spawn = from->spawn};
        rpc_usage_unpack(from->usage, &to->usage);
        usage_record(x->service, rank, from->job, &to->usage);
    }
    commit_queue_event(x->service, &event);
}
