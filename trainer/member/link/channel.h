#ifndef DDP_TRAINER_MEMBER_LINK_CHANNEL_H
#define DDP_TRAINER_MEMBER_LINK_CHANNEL_H

#include "proto/rpc_client.h"
#include "trainer/member/link/internal.h"

/* The channel to the coordinator, which another one replaces when the coordinator moves. A call takes it and
 * puts it when it has ended; the last one closes it. */

struct link_channel {
    struct rpc_channel *rpc;
    char *target;
    int users; /* under the link's lock */
};
MUST_CHECK enum err_code link_channel_open(struct link *r, struct err *e);
struct link_channel *link_channel_take(struct link *r);
void link_channel_put(struct link *r, struct link_channel *channel); /* NULL is fine */
/* Looks where the coordinator is now. True: elsewhere than before; calls to the former address end with
 * CANCELLED. Any thread. */
bool link_channel_follow(struct link *r);
/* CANCELLED because of that, and not because this worker ends: worth another try. */
bool link_channel_left(struct link *r, const struct link_channel *channel);

/* A call of the Rendezvous service by its name. Every one is idempotent at the coordinator. */
MUST_CHECK enum err_code link_call(struct link *r, const char *method, const void *request, void **reply,
                                   int64_t timeout_ms, struct err *e);
/* Whether to make the call again after this error: waits a while first, and says so once. `tries` counts up
 * from 0. */
bool link_call_again(struct link *r, const char *method, const struct err *e, int *tries);

#endif
