#ifndef DDP_DAEMON_COORDINATOR_SERVICE_AGENT_RPC_H
#define DDP_DAEMON_COORDINATOR_SERVICE_AGENT_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/coordinator/service/relays.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_server.h"
#include "store/store.h"

/* The sessions of agents: one bidirectional stream for each connected agent. Loop thread. */

struct service;
struct held_hello;

struct agent_session {
    struct service *service;
    struct rpc_call *rpc;
    uint64_t handle;
    char *node;        /* NULL before the hello */
    bool welcomed;     /* the core has accepted the hello */
    bool dates_logs;   /* the agent says when the bytes of a log were written */
    bool greps_logs;   /* it can search logs */
    size_t log_reads;  /* that it serves, and some that have ended (logs/log_share.c) */
    uint64_t log_full; /* the log_stream.pass that has found no room for one more read here */
    bool waiting;      /* the epoch is not durable yet (full disk): only the node's leases are renewed */
    bool wish_due;     /* the newest wish has not been sent yet */
    uint8_t *facts;    /* the newest facts, packed, while commits fail; NULL: none */
    size_t facts_size;
    bool report_refused; /* a report could not be read, and that was logged */
    struct relay_offer relay;
    struct held_hello *held; /* cards.c: set while the session waits for cards */
    struct agent_session *next, *prev;
    struct agent_session *same_name; /* an older one with the same digest of its node's name */
};

/* The methods of ddp.v1.Agent; the last row has no name. */
extern const struct rpc_method agent_methods[];

/* Gives the session, which has none, the name of its node. */
void agent_session_name(struct agent_session *x, const char *node);
/* The node's welcomed session; NULL: there is none. */
struct agent_session *agent_session_find(struct service *s, const char *node);
/* RESOURCE_EXHAUSTED: the agent reads too slowly, and the message was not queued. */
MUST_CHECK enum err_code agent_session_send(struct agent_session *session, const Ddp__V1__AgentDown *message,
                                            struct err *e);
/* Hands the hello and the cards that came with it to the core. */
void agent_session_hello(struct agent_session *x, const Ddp__V1__Hello *m, const struct records *cards,
                         size_t count);
void agent_sessions_push(struct service *s);   /* sends the wishes that are due */
void agent_sessions_redial(struct service *s); /* ends the sessions that wait for an epoch */
void agent_sessions_release_facts(
    struct service *s); /* hands in the facts that waited while commits failed */

#endif
