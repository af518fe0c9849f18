#ifndef DDP_DAEMON_COORDINATOR_SERVICE_CARDS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_CARDS_H

#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/service/pool.h"
#include "proto/ddp.pb-c.h"

/* What nodes keep of jobs for the coordinator, as messages. */

struct service;
struct agent_session;

void cards_fill(struct pool *pool, const struct service *s, const struct core_wish *wish, Ddp__V1__Wish *out);
struct core_card_head *cards_heads(struct pool *pool, const Ddp__V1__Hello *m);
/* True: the hello is held until the node has sent what it was asked for; agent_session_hello follows. */
bool cards_request(struct agent_session *x, const Ddp__V1__Hello *m);
void cards_received(struct agent_session *x, const Ddp__V1__JobCard *m);
void cards_drop(struct agent_session *x); /* the session ends */

#endif
