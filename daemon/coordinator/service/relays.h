#ifndef DDP_DAEMON_COORDINATOR_SERVICE_RELAYS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_RELAYS_H

#include "base/net/relay_hello.h"
#include "daemon/coordinator/service/metrics/stats.h"
#include "proto/ddp.pb-c.h"

/* The relays for ranks that cannot reach each other: the coordinator's own (`relay:` in coordinator.yaml), and those of the
 * agents that have said in their hello that they run one. Loop thread. */

struct service;
struct agent_session;

/* What an agent says of its relay; zeroed: it has none. */
struct relay_offer {
    char *node; /* only of an agent that has left */
    char *address;
    uint8_t key[RELAY_KEY];
    uint64_t bytes, links;
};

MUST_CHECK enum err_code relays_open(struct service *s,
                                     struct err *e); /* the coordinator's own, if there is one */
void relays_close(struct service *s);
void relays_keep_offer(struct agent_session *session, const Ddp__V1__Hello *hello);
/* The session ends. Its relay stays in mind: it is likely to come back with its agent, and with the same key. */
void relays_agent_left(struct agent_session *session);
/* Forgets what relays_agent_left has kept of a node that is not expected back. */
void relays_node_changed(struct service *service, const char *node);
/* Names a relay in the answer to Join, and the ticket of the generation. The reply borrows from *ticket and from the relay. */
void relays_fill_join(struct service *s, int64_t job, int64_t generation, uint8_t ticket[RELAY_TICKET],
                      Ddp__V1__JoinReply *reply);
void relays_count(struct service *s, struct stats_relays *out);

#endif
