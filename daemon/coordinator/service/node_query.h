#ifndef DDP_DAEMON_COORDINATOR_SERVICE_NODE_QUERY_H
#define DDP_DAEMON_COORDINATOR_SERVICE_NODE_QUERY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_server.h"

struct service;
struct agent_session;

/* A user's call that several nodes must answer, each over its session: asked at once, finished when all have
 * answered, or have gone, or the time is up. What a node did not say in time is noted, not waited for. Loop
 * thread. */

struct node_query_part {
    struct node_query *query;
    uint64_t handle, session; /* session 0: it was not asked */
    char *node;
    struct buf answer;                 /* packed */
    char *problem;                     /* instead of an answer */
    int64_t asked_wall, answered_wall; /* coordinator's clock */
    bool done;
};

struct node_query {
    struct service *service;
    struct rpc_call *rpc;
    struct node_query_part **parts;
    size_t count, cap, waiting;
    int64_t deadline;                         /* CLOCK_BOOTTIME ms */
    void (*finish)(struct node_query *query); /* replies; the query is freed after it */
    int64_t job, generation;
    struct node_query *next, *prev;
};

/* The call's user from now on; its row's on_end is node_query_end. */
struct node_query *node_query_open(struct service *s, struct rpc_call *rpc, int64_t timeout_ms,
                                   void (*finish)(struct node_query *));
/* A part for the node. Its handle goes into the message that node_query_send sends. */
struct node_query_part *node_query_add(struct node_query *query, const char *node);
/* Without a session, or with a full stream, the part is done and says so. */
void node_query_send(struct node_query_part *part, const Ddp__V1__AgentDown *down);
void node_query_start(struct node_query *query); /* after the last node_query_send: may finish it at once */

void node_query_answered(struct agent_session *session, uint64_t handle, const ProtobufCMessage *answer);
void node_query_session_gone(const struct agent_session *session);
void node_query_end(struct rpc_call *rpc, bool cancelled); /* on_end */

#endif
