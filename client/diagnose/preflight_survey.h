#ifndef DDP_CLIENT_DIAGNOSE_PREFLIGHT_SURVEY_H
#define DDP_CLIENT_DIAGNOSE_PREFLIGHT_SURVEY_H

#include "client/connect.h"
#include "client/diagnose/preflight.h"

/* Asks nodes whether they are fit for a job, over the coordinator, and keeps what they said. */
struct preflight_survey {
    Ddp__V1__ListNodesReply *nodes;
    Ddp__V1__CheckNodesReply *places, *listens, *links; /* NULL: not asked */
    struct preflight preflight;                         /* borrows from the above */
};

/* The nodes that could run something now; `names` limits them to those (count 0: all). Others are found fault
 * with. */
MUST_CHECK enum err_code preflight_survey_nodes(struct preflight_survey *s, struct link *link,
                                                char *const *names, size_t count, struct findings *found,
                                                struct err *e);
MUST_CHECK enum err_code preflight_survey_places(struct preflight_survey *s, struct link *link,
                                                 Ddp__V1__CheckPlace *place, int64_t limit_ms, struct err *e);
/* Every ordered pair of nodes; each node also measures how fast it sends to the next one. */
MUST_CHECK enum err_code preflight_survey_links(struct preflight_survey *s, struct link *link, struct err *e);
void preflight_survey_release(struct preflight_survey *s); /* for CLEANUP too */

/* The cheap half, of submit: a warning a finding. Says nothing when it cannot be done. */
void preflight_survey_warn(struct link *link, const char *job_file, char *const *env);

#endif
