#ifndef DDP_CLIENT_DIAGNOSE_PREFLIGHT_H
#define DDP_CLIENT_DIAGNOSE_PREFLIGHT_H

#include "base/job/job.h"
#include "client/text/term.h"
#include "proto/ddp.pb-c.h"

/* The preflight check: from the nodes' answers to a list of problems, each with its remedy. No input or
 * output here; preflight_survey asks the nodes, and screen_check prints. */

struct preflight {
    const Ddp__V1__NodeStatus **nodes;   /* the nodes that are checked; borrowed, like everything below */
    const Ddp__V1__CheckAnswer **places; /* an answer for each node, like the two below; NULL: not asked */
    const Ddp__V1__CheckAnswer **listens, **links;
    size_t count;
    const char *version; /* the coordinator's; NULL: not compared */
    bool nodes_only;     /* there is no job, so no working directory was checked */
};

struct finding {
    char *node; /* "": it concerns no single node. All three are owned */
    char *what; /* the problem */
    char *fix;  /* its remedy; NULL: unknown */
};
struct findings {
    struct finding *items;
    size_t count, cap;
};
void findings_add(struct findings *f, const char *node, char *what, char *fix); /* takes both texts */
struct jout;
void findings_print_json(const struct findings *f, struct jout *o); /* as the list "problems" */
void findings_release(struct findings *f);                          /* for CLEANUP too */

void preflight_check(const struct preflight *f, struct findings *out); /* appends */
/* Adds a finding if too few of the nodes are large enough for the job, no matter what runs on them now. */
void preflight_check_size(const struct preflight *f, const struct job_spec *spec, struct findings *out);
/* Adds findings if nodes lack the instruction set that a train job on CPUs is pinned to, or if nothing pins it
 * and the nodes have different ones. */
void preflight_check_isa(const struct preflight *f, const struct job_spec *spec, struct findings *out);
void preflight_check_places(const struct preflight *f,
                            struct findings *out); /* directories, data, interpreter only */

/* What a worker of the job needs on a node, as a request to the node. hash: compare file contents, not only
 * sizes. Borrows from spec and env; preflight_place_release frees the arrays. */
void preflight_place_init(const struct job_spec *spec, char *const *env, bool hash, Ddp__V1__CheckPlace *out);
void preflight_place_release(Ddp__V1__CheckPlace *place);

#endif
