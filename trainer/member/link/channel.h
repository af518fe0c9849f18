#ifndef DDP_TRAINER_MEMBER_LINK_CHANNEL_H
#define DDP_TRAINER_MEMBER_LINK_CHANNEL_H

#include "proto/rpc_client.h"
#include "trainer/member/link/internal.h"

/* The channel to the coordinator. When the coordinator moves, a new channel replaces it. A call holds a
 * reference to the channel that it uses; the last reference closes it. */

struct link_channel {
    struct rpc_channel *rpc;
    char *target;
    int users; /* under the link's lock */
};
MUST_CHECK enum err_code link_channel_open(struct link *r, struct err *e);
struct link_channel *link_channel_take(struct link *r);
void link_channel_put(struct link *r, struct link_channel *channel); /* NULL is fine */
/* Reads the coordinator's current address. True: it has moved, and calls to the former address end with
 * CANCELLED. Any thread. */
bool link_channel_follow(struct link *r);
/* Whether a call ended with CANCELLED because the coordinator moved, not because this worker ends: retry it.
 */
bool link_channel_left(struct link *r, const struct link_channel *channel);

/* Calls a method of the Rendezvous service. All of them are idempotent. */
MUST_CHECK enum err_code link_call(struct link *r, const char *method, const void *request, void **reply,
                                   int64_t timeout_ms, struct err *e);
/* Whether to retry the call after this error; waits first, and logs the first retry. `tries` counts up from
 * 0. */
bool link_call_again(struct link *r, const char *method, const struct err *e, int *tries);

#endif
