#ifndef DDP_DAEMON_COORDINATOR_SERVICE_NODE_QUERY_H
#define DDP_DAEMON_COORDINATOR_SERVICE_NODE_QUERY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_server.h"

struct service;
struct agent_session;

/* A user's call that several nodes answer over their sessions. All nodes are asked at once. The query
 * finishes when each has answered, has disconnected, or the time is up; a node without an answer has a
 * `problem` instead, so one hanging node never fails the whole call. Loop thread.
 *
 * Use: node_query_open, then for each node node_query_add and node_query_send, then node_query_start. */

struct node_query_part {
    struct node_query *query;
    uint64_t handle;  /* the question's number in messages */
    uint64_t session; /* the session that was asked; 0: none */
    char *node;
    struct buf answer;                 /* the packed message */
    char *problem;                     /* why there is no answer: "cannot be reached"; NULL: there is one */
    int64_t asked_wall, answered_wall; /* the coordinator's clock, ms */
    bool done;
};

struct node_query {
    struct service *service;
    struct rpc_call *rpc;
    struct node_query_part **parts;
    size_t count, cap, waiting;
    int64_t deadline;                         /* CLOCK_BOOTTIME ms */
    void (*finish)(struct node_query *query); /* sends the reply; the query is freed after it */
    int64_t job, generation;
    struct node_query *next, *prev;
};

/* The query becomes the call's user data; the method's on_end must be node_query_end. */
struct node_query *node_query_open(struct service *s, struct rpc_call *rpc, int64_t timeout_ms,
                                   void (*finish)(struct node_query *));
/* Adds a node. The part's handle must go into the message that node_query_send sends. */
struct node_query_part *node_query_add(struct node_query *query, const char *node);
/* If the node has no session, or reads too slowly, the part is done with that problem. */
void node_query_send(struct node_query_part *part, const Ddp__V1__AgentDown *down);
void node_query_start(struct node_query *query); /* may finish the query at once */

void node_query_answered(struct agent_session *session, uint64_t handle, const ProtobufCMessage *answer);
void node_query_session_gone(const struct agent_session *session);
void node_query_end(struct rpc_call *rpc, bool cancelled); /* on_end */

#endif
