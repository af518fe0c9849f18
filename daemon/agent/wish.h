#ifndef DDP_DAEMON_AGENT_WISH_H
#define DDP_DAEMON_AGENT_WISH_H

#include <stdbool.h>

#include "base/err.h"
#include "daemon/agent/cards.h"
#include "proto/ddp.pb-c.h"

/* The last wish of the coordinator, in memory and in <state>/wish. Durable before anyone acts on it. */

struct wish_store {
    char *path;
    Ddp__V1__Wish *wish; /* NULL: never had one */
};

/* A damaged file is an error: without it nobody knows which records are still wanted. */
MUST_CHECK enum err_code wish_open(struct wish_store *out, const char *state, struct err *e);
void wish_close(struct wish_store *w);

/* FAILED_PRECONDITION: another cluster's, or older than what is kept; nothing has changed. Other errors: not
 * durable, the wish has not changed. The cards that came with it are kept before it counts. */
MUST_CHECK enum err_code wish_accept(struct wish_store *w, struct card_store *cards,
                                     const Ddp__V1__Wish *wish, struct err *e);
MUST_CHECK enum err_code wish_forget(struct wish_store *w, struct err *e); /* --rejoin */

const Ddp__V1__GroupWish *wish_group(const Ddp__V1__Wish *wish, int64_t job); /* NULL: none */
bool wish_any(const Ddp__V1__Wish *wish);                                     /* there are workers in it */
bool wish_leases(const Ddp__V1__Wish *wish, const char *uuid); /* the GPU, to some worker of it */

#endif
