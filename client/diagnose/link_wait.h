#ifndef DDP_CLIENT_DIAGNOSE_LINK_WAIT_H
#define DDP_CLIENT_DIAGNOSE_LINK_WAIT_H

#include "base/buf.h"
#include "base/job/sync_choice.h"
#include "proto/ddp.pb-c.h"

/* Whether a train job's all-reduce waits for the link between its nodes. A rank also waits for slower ranks, but the
 * slowest rank waits for none: so the link's part is the shortest wait of all ranks. */

struct link_wait {
    double share;      /* of a step, for which every rank waits for the link */
    double step_ms;    /* of the slowest rank */
    double speedup;    /* by `better` */
    bool allowed;      /* the job's other keys allow `better` */
    int64_t report_ms; /* from one report of a rank to the next, about */
    struct sync_facts facts;
    struct sync_spec better;
};

/* Returns false if the ranks do not wait for the link, if another strategy would not be much faster, or if too little was
 * reported to know. */
bool link_wait_find(const Ddp__V1__ProbeJobReply *reply, struct link_wait *out);
/* "70 % of each step waits for the link (94 Mbit/s): sync diloco every 50, wire int4 would run 3.1 times as fast". Without the
 * strategy if the job's other keys do not allow it. */
void link_wait_print(const struct link_wait *w, struct buf *out);

#endif
