#include "daemon/coordinator/service/node_query.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/coordinator/service/agent_rpc.h"
#include "daemon/coordinator/service/handles.h"
#include "daemon/coordinator/service/service_state.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_codec.h"

#define TIMER_MS 50 /* how often deadlines are checked while there are queries */

static void query_part_free(struct node_query_part *part)
{
    handles_take(&part->query->service->query_parts, part->handle);
    buf_release(&part->answer);
    free(part->problem);
    free(part->node);
    free(part);
}

static void query_free(struct node_query *query)
{
    struct service *s = query->service;
    if (query->next)
        query->next->prev = query->prev;
    if (query->prev)
        query->prev->next = query->next;
    else
        s->query_list = query->next;
    for (size_t i = 0; i < query->count; i++)
        query_part_free(query->parts[i]);
    free(query->parts);
    free(query);
    if (!s->query_list)
        uv_timer_stop(&s->query_timer);
}

/* The call ends after the query, so node_query_end must find no query then. */
static void query_finish(struct node_query *query)
{
    struct rpc_call *rpc = query->rpc;
    query->finish(query);
    rpc_call_set_user(rpc, NULL);
    query_free(query);
}

static void query_part_finish(struct node_query_part *part, const char *problem)
{
    if (part->done) /* its answer or its first problem counts */
        return;
    part->done = true;
    part->problem = xstrdup(problem);
    part->query->waiting--;
}

static void query_on_timer(uv_timer_t *timer)
{
    struct service *s = timer->data;
    const int64_t now = clock_boot_ms();
    for (struct node_query *query = s->query_list, *next; query; query = next) {
        next = query->next;
        if (now < query->deadline)
            continue;
        for (size_t i = 0; i < query->count; i++)
            query_part_finish(query->parts[i], "did not answer in time");
        query_finish(query);
    }
}

struct node_query *node_query_open(struct service *s, struct rpc_call *rpc, int64_t timeout_ms,
                                   void (*on_finish)(struct node_query *))
{
    struct node_query *query = xcalloc(1, sizeof *query);
    *query = (struct node_query){.service = s,
                                 .rpc = rpc,
                                 .deadline = clock_boot_ms() + timeout_ms,
                                 .finish = on_finish,
                                 .next = s->query_list};
    if (query->next)
        query->next->prev = query;
    else
        uv_timer_start(&s->query_timer, query_on_timer, TIMER_MS, TIMER_MS);
    s->query_list = query;
    rpc_call_set_user(rpc, query);
    return query;
}

struct node_query_part *node_query_add(struct node_query *query, const char *node)
{
    struct node_query_part *part = xcalloc(1, sizeof *part);
    *part = (struct node_query_part){.query = query,
                                     .handle = service_handle(query->service),
                                     .node = xstrdup(node),
                                     .asked_wall = clock_wall_ms()};
    handles_put(&query->service->query_parts, part->handle, part);
    query->parts = array_grow(query->parts, query->count, &query->cap, sizeof(struct node_query_part *));
    query->parts[query->count++] = part;
    query->waiting++;
    return part;
}

void node_query_send(struct node_query_part *part, const Ddp__V1__AgentDown *down)
{
    struct agent_session *session = agent_session_find(part->query->service, part->node);
    struct err e = {0};
    if (!session) {
        query_part_finish(part, "cannot be reached");
        return;
    }
    part->session = session->handle;
    if (agent_session_send(session, down, &e) != ERR_OK)
        query_part_finish(part, "reads too slowly to be asked now");
}

void node_query_start(struct node_query *query)
{
    if (!query->waiting)
        query_finish(query);
}

void node_query_answered(struct agent_session *session, uint64_t handle, const ProtobufCMessage *answer)
{
    struct node_query_part *part = handles_get(&session->service->query_parts, handle);
    struct err e = {0};
    if (!part || part->session != session->handle || part->done)
        return; /* too late, or another node was asked */
    if (rpc_pack(answer, &part->answer, &e) != ERR_OK) {
        query_part_finish(part, "sent an invalid answer");
    } else {
        part->answered_wall = clock_wall_ms();
        query_part_finish(part, NULL);
    }
    if (!part->query->waiting)
        query_finish(part->query);
}

void node_query_session_gone(const struct agent_session *session)
{
    for (struct node_query *query = session->service->query_list, *next; query; query = next) {
        next = query->next;
        for (size_t i = 0; i < query->count; i++)
            if (query->parts[i]->session == session->handle)
                query_part_finish(query->parts[i], "disconnected before it answered");
        if (!query->waiting)
            query_finish(query);
    }
}

void node_query_end(struct rpc_call *rpc, bool cancelled)
{
    struct node_query *query = rpc_call_user(rpc);
    (void)cancelled;
    if (query)
        query_free(query);
}
