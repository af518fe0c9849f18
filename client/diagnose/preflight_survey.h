#ifndef DDP_CLIENT_DIAGNOSE_PREFLIGHT_SURVEY_H
#define DDP_CLIENT_DIAGNOSE_PREFLIGHT_SURVEY_H

#include "client/connect.h"
#include "client/diagnose/preflight.h"

/* Asks nodes, through the coordinator, for what the preflight check needs, and keeps their answers. */
struct preflight_survey {
    Ddp__V1__ListNodesReply *nodes;
    Ddp__V1__CheckNodesReply *places, *listens, *links; /* NULL: not asked */
    struct preflight preflight;                         /* borrows from the above */
};

/* Lists the nodes that can run something now. names: only these nodes; count 0: all. Lost and suspect nodes
 * are added to `found`. */
MUST_CHECK enum err_code preflight_survey_nodes(struct preflight_survey *s, struct link *link,
                                                char *const *names, size_t count, struct findings *found,
                                                struct err *e);
MUST_CHECK enum err_code preflight_survey_places(struct preflight_survey *s, struct link *link,
                                                 Ddp__V1__CheckPlace *place, int64_t limit_ms, struct err *e);
/* Tries ports between every ordered pair of nodes; each node also measures how fast it sends to the next. */
MUST_CHECK enum err_code preflight_survey_links(struct preflight_survey *s, struct link *link, struct err *e);
void preflight_survey_release(struct preflight_survey *s); /* for CLEANUP too */

/* The quick part of the check, for submit: prints each finding as a warning. An error is ignored: it must not
 * keep a job from being submitted. */
void preflight_survey_warn(struct link *link, const char *job_file, char *const *env);

#endif
