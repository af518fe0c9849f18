#ifndef DDP_DAEMON_COORDINATOR_SERVICE_ASK_H
#define DDP_DAEMON_COORDINATOR_SERVICE_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_server.h"

struct service;
struct session;

/* A user's call that several nodes must answer, each over its session: asked at once, finished when all have
 * answered, or have gone, or the time is up. What a node did not say in time is noted, not waited for. Loop
 * thread. */

struct ask_part {
    struct ask *ask;
    uint64_t handle, session; /* session 0: it was not asked */
    char *node;
    struct buf answer;                 /* packed */
    char *problem;                     /* instead of an answer */
    int64_t asked_wall, answered_wall; /* coordinator's clock */
    bool done;
};

struct ask {
    struct service *service;
    struct rpc_call *rpc;
    struct ask_part **parts;
    size_t count, cap, waiting;
    int64_t deadline;                /* CLOCK_BOOTTIME ms */
    void (*finish)(struct ask *ask); /* replies; the ask is freed after it */
    int64_t job, generation;
    struct ask *next, *prev;
};

/* The call's user from now on; its row's on_end is ask_end. */
struct ask *ask_open(struct service *s, struct rpc_call *rpc, int64_t timeout_ms,
                     void (*finish)(struct ask *));
/* A part for the node. Its handle goes into the message that ask_send sends. */
struct ask_part *ask_add(struct ask *ask, const char *node);
/* Without a session, or with a full stream, the part is done and says so. */
void ask_send(struct ask_part *part, const Ddp__V1__AgentDown *down);
void ask_start(struct ask *ask); /* after the last ask_send: may finish it at once */

void ask_answered(struct session *session, uint64_t handle, const ProtobufCMessage *answer);
void ask_session_gone(const struct session *session);
void ask_end(struct rpc_call *rpc, bool cancelled); /* on_end */

#endif
