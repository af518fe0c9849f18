#ifndef DDP_DAEMON_COORDINATOR_SERVICE_AGENT_RPC_H
#define DDP_DAEMON_COORDINATOR_SERVICE_AGENT_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ddp.pb-c.h"
#include "proto/rpc_server.h"
#include "store/store.h"

/* The sessions of agents: one stream both ways for each agent that is connected. Loop thread. */

struct service;
struct held_hello;

struct agent_session {
    struct service *service;
    struct rpc_call *rpc;
    uint64_t handle;
    char *node;     /* NULL before hello */
    bool welcomed;  /* the core took it */
    bool waiting;   /* there is no durable epoch yet: only the node's leases are renewed */
    bool wish_due;  /* the newest wish is not on its way yet */
    uint8_t *facts; /* packed, held back while commits fail: the newest are the whole truth */
    size_t facts_size;
    struct held_hello *held; /* cards.c: set while the session waits for cards */
    struct agent_session *next, *prev;
};

/* The methods of ddp.v1.Agent; the last row has no name. */
extern const struct rpc_method agent_methods[];

struct agent_session *agent_session_find(struct service *s, const char *node); /* welcomed ones only */
MUST_CHECK enum err_code agent_session_send(struct agent_session *session, const Ddp__V1__AgentDown *message,
                                            struct err *e);
void agent_session_hello(struct agent_session *x, const Ddp__V1__Hello *m, const struct records *cards,
                         size_t count);
void agent_sessions_push(struct service *s);          /* sends the wishes that are due */
void agent_sessions_redial(struct service *s);        /* ends those that wait for an epoch */
void agent_sessions_release_facts(struct service *s); /* facts that waited while commits failed */

#endif
