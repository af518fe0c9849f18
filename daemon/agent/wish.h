#ifndef DDP_DAEMON_AGENT_WISH_H
#define DDP_DAEMON_AGENT_WISH_H

#include <stdbool.h>

#include "base/err.h"
#include "daemon/agent/cards.h"
#include "proto/ddp.pb-c.h"

/* The last wish of the coordinator, in memory and in <state>/wish: all that it wants of this node. It is on
 * disk before anything acts on it, with one exception: while the disk cannot take a new wish, workers are stopped by it all the
 * same. Nothing is started or forgotten by it, because an agent that starts again finds only the old one. Loop thread. */

#define WISH_MAX ((size_t)64 << 20) /* bytes, on the way and on disk */

struct wish_store {
    char *path;
    Ddp__V1__Wish *wish;    /* NULL: there never was one */
    Ddp__V1__Wish *unsaved; /* the newest one, if it could not be written; otherwise NULL */
    bool brief;             /* the caller may set it: of `ddpctl run`, whose files need no sync to the disk */
};

/* DATA_LOSS: the file is damaged. Without it nobody knows which exit records are still wanted. */
MUST_CHECK enum err_code wish_open(struct wish_store *out, const char *state, struct err *e);
void wish_close(struct wish_store *w);

/* Replaces the wish and keeps its cards, which are on disk first. FAILED_PRECONDITION: it is of another
 * cluster, or older than the kept one. Any other error: it could not be written. Then the wish is the old one, and a copy
 * of the new one, with its cards, is `unsaved`: call this function with it to try again. */
MUST_CHECK enum err_code wish_accept(struct wish_store *w, struct card_store *cards,
                                     const Ddp__V1__Wish *wish, struct err *e);
MUST_CHECK enum err_code wish_forget(struct wish_store *w, struct err *e); /* --rejoin */

const Ddp__V1__GroupWish *wish_group(const Ddp__V1__Wish *wish, int64_t job); /* NULL: none */
/* Where the spawn's logs are (log_place.h). An older coordinator does not say; its spawns have one membership
 * for their life. */
int64_t wish_first_generation(const Ddp__V1__SpawnWish *spawn);
int wish_first_local_rank(const Ddp__V1__SpawnWish *spawn);
bool wish_any(const Ddp__V1__Wish *wish);                      /* it names workers */
bool wish_leases(const Ddp__V1__Wish *wish, const char *uuid); /* one of its workers has leased this GPU */

#endif
