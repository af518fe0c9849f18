#ifndef DDP_CLIENT_TOP_TOP_MODEL_H
#define DDP_CLIENT_TOP_TOP_MODEL_H

#include "client/text/series.h"
#include "proto/ddp.pb-c.h"

/* What `ddpctl top` shows, as the coordinator said it last. The screens borrow it; top_fetch.h owns it. */

struct top_job {
    const Ddp__V1__JobStatus *status; /* NULL: nothing is known of the opened job yet */
    const char *why;                  /* the sentence of `ddpctl why`; NULL: none */
    const char *curve_label;          /* "#9 loss" */
    struct series curve;              /* empty: the job reports no loss */
    char *const *log;                 /* the last lines, the oldest first; NULL-terminated, or NULL */
};

struct top_model {
    const Ddp__V1__ListJobsReply *totals; /* NULL: the coordinator has not answered yet */
    Ddp__V1__JobStatus *const *jobs;
    size_t job_count;
    Ddp__V1__NodeStatus *const *nodes;
    size_t node_count;
    const char *problem; /* why what is shown is old; NULL: it is not */
    struct top_job open;
};

#endif
