#ifndef DDP_TRAINER_MEMBER_COLL_RELAY_PATH_H
#define DDP_TRAINER_MEMBER_COLL_RELAY_PATH_H

#include "base/net/relay_hello.h"
#include "trainer/member/coll/group.h"
#include "trainer/member/coll/shake.h"

/* The way to a peer by a relay (base/net/relay_hello.h), for ranks that cannot reach each other. What comes after it is the
 * same as on a direct connection: the relay is trusted with nothing. */

#define RELAY_DIRECT_MS 1000 /* a peer has this time to be reached directly before the relay is asked */
#define RELAY_PEER_MS 10000  /* limit for waiting at the relay until the peer is there, too */

bool relay_path_known(const struct coll_group *g); /* the group has a relay */
MUST_CHECK enum err_code relay_path_connect(int *fd, const struct coll_group *g, struct err *e);
/* Sends the answer to the relay's challenge, which is in s->in. Returns false if the answer could not be sent. */
bool relay_path_ask(const struct shake *s, const struct coll_group *g, enum relay_end end,
                    const struct shake_pair *pair);
/* Keeps whether the connection to (CONNECTOR) or from (ACCEPTOR) `peer` is relayed, as a hint for the next one. */
void relay_path_keep(struct coll_group *g, enum relay_end end, int peer, bool relayed);
bool relay_path_used(const struct coll_group *g, enum relay_end end, int peer);
/* Logs in one line which peers are reached by the relay, if there are any. */
void relay_path_log(const struct coll_group *g);

#endif
