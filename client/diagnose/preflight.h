#ifndef DDP_CLIENT_DIAGNOSE_PREFLIGHT_H
#define DDP_CLIENT_DIAGNOSE_PREFLIGHT_H

#include "base/job/job.h"
#include "client/screen/term.h"
#include "proto/ddp.pb-c.h"

/* Whether nodes are fit for a job: from their answers to what is wrong with each, and what mends it. No input
 * or output here; cmd_check asks and prints. */

struct preflight {
    const Ddp__V1__NodeStatus **nodes;   /* those that are asked; borrowed, as all below */
    const Ddp__V1__CheckAnswer **places; /* by node, as the others; NULL: not asked */
    const Ddp__V1__CheckAnswer **listens, **links;
    size_t count;
    const char *version; /* the coordinator's; NULL: not compared */
};

struct finding {
    char *node, *what, *fix; /* owned; fix may be NULL */
};
struct findings {
    struct finding *items;
    size_t count, cap;
};
void findings_add(struct findings *f, const char *node, char *what, char *fix); /* takes both texts */
void findings_release(struct findings *f);                                      /* for CLEANUP too */

void preflight_check(const struct preflight *f, struct findings *out); /* appends */
/* Whether enough of the nodes are large enough, whatever is busy there now. */
void preflight_check_size(const struct preflight *f, const struct job_spec *spec, struct findings *out);
void preflight_check_places(const struct preflight *f,
                            struct findings *out); /* directories, data, interpreter only */

/* What a worker of the job needs of a node. Borrows from the spec and env; free the arrays with
 * place_release. */
void preflight_place_init(const struct job_spec *spec, char *const *env, bool hash, Ddp__V1__CheckPlace *out);
void preflight_place_release(Ddp__V1__CheckPlace *place);

#endif
