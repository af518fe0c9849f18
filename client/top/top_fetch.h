#ifndef DDP_CLIENT_TOP_TOP_FETCH_H
#define DDP_CLIENT_TOP_TOP_FETCH_H

#include "client/cmd/jobs/job_find.h"
#include "client/top/top_state.h"

/* Asks the coordinator for what `ddpctl top` shows, and owns the answers. What could not be fetched stays as it was, and
 * model.problem says why. */
struct top_fetched {
    struct top_model model; /* borrows from the fields below */
    struct job_pages pages;
    void *nodes, *job;
    int64_t opened;            /* the job that model.open is about; 0: none */
    int64_t whys_at, curve_at; /* monotonic ms: when these are fetched again */
    enum err_code code;        /* of the last fetch */
    char *problem, *why, *curve_label;
    char **log;
};

/* What the user's page needs now. Returns false if the coordinator has not answered. */
bool top_fetch(struct top_fetched *d, struct link *link, const struct top_state *s);
void top_fetched_release(struct top_fetched *d);
/* Cancels the job; `out` gets the answer, or the error. */
void top_cancel(struct link *link, int64_t job, char *out, size_t size);

#endif
