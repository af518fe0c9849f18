#ifndef DDP_CLIENT_DIAGNOSE_BOUND_H
#define DDP_CLIENT_DIAGNOSE_BOUND_H

#include "base/buf.h"
#include "proto/ddp.pb-c.h"

/* What bounds a running job: from the times that its ranks report, or else from what their nodes measure, which is there
 * for any program. Depends on the reply only. */

enum bound_kind {
    BOUND_UNKNOWN, /* too little is known, or nothing stands out */
    BOUND_COMPUTE, /* the ranks compute nearly all the time */
    BOUND_LINK,    /* they wait for each other's data */
    BOUND_DATA,    /* they wait for their input: storage, or the CPU that prepares it */
    BOUND_RANK,    /* one rank differs from all others: they wait for it, or it waits for something else */
    BOUND_WAIT     /* they do nothing: they wait for something outside */
};
const char *bound_name(enum bound_kind kind); /* "compute" */

struct bound {
    enum bound_kind kind;
    const Ddp__V1__RankStatus *rank; /* BOUND_RANK: that rank, borrowed from the reply */
    struct buf text;                 /* "bound by compute: each rank uses 98 % of a core"; may be empty */
};

void bound_find(const Ddp__V1__ProbeJobReply *reply, struct bound *out); /* *out is zeroed by the caller */
void bound_release(struct bound *b);                                     /* for CLEANUP too */

#endif
