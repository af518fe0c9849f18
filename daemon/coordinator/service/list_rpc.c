#include "daemon/coordinator/service/list_rpc.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/service/access/auth.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/convert.h"
#include "daemon/coordinator/service/forecasts.h"
#include "daemon/coordinator/service/pool.h"
#include "daemon/coordinator/service/service_state.h"
#include "daemon/coordinator/service/status_notes.h"
#include "proto/ddp.pb-c.h"

#define RECENT_MS (24 * 3600 * 1000LL) /* jobs that ended longer ago are listed only on request */
#define LIST_LIMIT 100

/* Keeps the ids that the request wants, in growing order: the newest `limit` of them, or, for the next page
 * (`after`), the oldest. */
static size_t list_choose_jobs(struct service *s, const Ddp__V1__ListJobsRequest *request, int64_t *ids,
                               size_t count)
{
    const size_t limit = request->limit > 0 ? (size_t)request->limit : LIST_LIMIT;
    const int64_t now = service_now().wall_ms;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const struct job_record *job = core_job(s->core, ids[i]);
        if (request->all || !sm_terminal(&job_sm, (int)job->state) || job->ended_ms > now - RECENT_MS)
            ids[kept++] = ids[i];
    }
    if (kept <= limit)
        return kept;
    if (request->after == 0)
        memmove(ids, ids + (kept - limit), limit * sizeof *ids);
    return limit;
}

/* Adds the unhealthy GPUs, as "box2 gpu1", but not those of nodes that are lost or have left. */
static void list_sick_gpus(struct service *s, struct pool *pool, size_t most, Ddp__V1__ListJobsReply *reply)
{
    struct core_node_status node = {0};
    struct err e = {0};
    size_t count;
    const char **names = core_node_names(s->core, &count);

    reply->gpus_sick = pool_alloc(pool, (most + 1) * sizeof *reply->gpus_sick);
    for (size_t i = 0; i < count; i++) {
        if (core_node_status(s->core, names[i], service_now(), &node, &e) != ERR_OK)
            continue;
        bool gone = node.node->state == NODE_LOST || node.node->state == NODE_LEFT;
        for (size_t k = 0; k < node.gpu_count && reply->n_gpus_sick < most; k++) {
            CLEANUP(free_text) char *name = xasprintf("%s gpu%d", names[i], node.gpus[k].index);
            if (!node.gpus[k].healthy && !gone)
                reply->gpus_sick[reply->n_gpus_sick++] = pool_text(pool, name);
        }
        core_node_status_release(&node);
    }
    free(names);
}

static void list_fill_totals(struct service *s, struct pool *pool, Ddp__V1__ListJobsReply *reply)
{
    struct core_totals totals;
    core_totals(s->core, &totals);
    reply->nodes = totals.nodes;
    reply->slots = totals.slots;
    reply->slots_busy = totals.slots_busy;
    reply->gpus = totals.gpus;
    reply->gpus_busy = totals.gpus_busy;
    reply->gpus_free = totals.gpus_free;
    list_sick_gpus(s, pool, (size_t)totals.gpus_sick, reply);
}

void list_jobs(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__ListJobsRequest *request = message;
    struct err e = {0};
    CLEANUP(pool_release) struct pool pool = {0};
    Ddp__V1__ListJobsReply reply = DDP__V1__LIST_JOBS_REPLY__INIT;
    commit_queue_flush(s);
    size_t count;
    int64_t *ids = core_job_ids(s->core, request->after, &count);
    count = list_choose_jobs(s, request, ids, count);
    struct core_job_status *statuses = pool_alloc(&pool, count * sizeof *statuses);
    reply.jobs = pool_alloc(&pool, count * sizeof *reply.jobs);
    for (size_t i = 0; i < count; i++) {
        /* Statuses are kept until the reply is sent, since the messages borrow from them. */
        if (core_job_status(s->core, ids[i], false, &statuses[i], &e) != ERR_OK)
            continue;
        reply.jobs[reply.n_jobs] = pool_alloc(&pool, sizeof **reply.jobs);
        convert_job(&pool, &statuses[i], false, reply.jobs[reply.n_jobs]);
        forecasts_fill(s, &pool, &statuses[i], false, reply.jobs[reply.n_jobs]);
        caller_hide_logs(s, rpc, reply.jobs[reply.n_jobs++]);
    }
    list_fill_totals(s, &pool, &reply);
    reply.notes = status_notes(s);
    reply.n_notes = strv_len(reply.notes);
    rpc_call_reply(rpc, &reply);
    strv_free(reply.notes);
    for (size_t i = 0; i < count; i++)
        core_job_status_release(&statuses[i]);
    free(ids);
}

void list_nodes(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    struct err e = {0};
    CLEANUP(pool_release) struct pool pool = {0};
    Ddp__V1__ListNodesReply reply = DDP__V1__LIST_NODES_REPLY__INIT;
    (void)message;
    commit_queue_flush(s);
    size_t count;
    const char **names = core_node_names(s->core, &count);
    struct core_node_status *statuses = pool_alloc(&pool, count * sizeof *statuses);
    reply.nodes = pool_alloc(&pool, count * sizeof *reply.nodes);
    for (size_t i = 0; i < count; i++) {
        if (core_node_status(s->core, names[i], service_now(), &statuses[i], &e) != ERR_OK)
            continue;
        reply.nodes[reply.n_nodes] = pool_alloc(&pool, sizeof **reply.nodes);
        convert_node(&pool, &statuses[i], service_now(), reply.nodes[reply.n_nodes++]);
    }
    rpc_call_reply(rpc, &reply);
    for (size_t i = 0; i < count; i++)
        core_node_status_release(&statuses[i]);
    free(names);
}
