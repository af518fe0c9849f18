#ifndef DDP_DAEMON_COORDINATOR_SERVICE_CARDS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_CARDS_H

#include "daemon/coordinator/core/core.h"
#include "daemon/coordinator/service/pool.h"
#include "proto/ddp.pb-c.h"

/* Cards: sealed copies of jobs' records that nodes keep for a coordinator that has lost its own records. This
 * module sends and receives them; the core decides (core/cards/card.h, core/cards/adopt.h). Loop thread. */

struct service;
struct agent_session;

/* Adds the cards of the wish to its message. */
void cards_fill(struct pool *pool, const struct service *s, const struct core_wish *wish, Ddp__V1__Wish *out);
/* The cards that the node says it has; the array is the pool's. */
struct core_card_head *cards_heads(struct pool *pool, const Ddp__V1__Hello *m);
/* Asks the node for the cards in its hello that are newer than our records. False: there are none. True: the
 * hello is kept, and agent_session_hello is called with it when the cards have arrived. */
bool cards_request(struct agent_session *x, const Ddp__V1__Hello *m);
void cards_received(struct agent_session *x, const Ddp__V1__JobCard *m);
void cards_drop(struct agent_session *x); /* frees a kept hello; the session ends */

#endif
