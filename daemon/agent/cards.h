#ifndef DDP_DAEMON_AGENT_CARDS_H
#define DDP_DAEMON_AGENT_CARDS_H

#include <stdbool.h>

#include "base/err.h"
#include "proto/ddp.pb-c.h"

/* Cards: copies of job records that this node keeps in case the coordinator loses its own. There is one card
 * for each job that has, or had, workers here, in <state>/cards/<job>. Cards are sealed: only the coordinator
 * can read them. Of ended jobs the newest 1,000 cards are kept (ended_most), as many as a coordinator keeps
 * by default. Loop thread. */

struct card_store {
    char *dir;
    Ddp__V1__JobCard **heads; /* without their data */
    size_t count, cap, ended_most;
    bool brief; /* the caller may set it: of `ddpctl run`, whose files need no sync to the disk */
};

/* A card that cannot be read is logged and left out. */
MUST_CHECK enum err_code cards_open(struct card_store *out, const char *state, struct err *e);
void cards_close(struct card_store *c);

/* Stores these cards and removes those without data. Durable on return, unless they are brief. */
MUST_CHECK enum err_code cards_keep(struct card_store *c, Ddp__V1__JobCard *const *cards, size_t count,
                                    struct err *e);
void cards_forget(struct card_store *c); /* --rejoin */
/* The whole card; NULL if the node no longer has it or cannot read it. The caller frees it with rpc_free. */
Ddp__V1__JobCard *cards_read(const struct card_store *c, int64_t job);

#endif
