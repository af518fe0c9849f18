#ifndef DDP_CLIENT_RUN_RUN_OUTPUT_H
#define DDP_CLIENT_RUN_RUN_OUTPUT_H

#include "client/run/launch.h"
#include "client/run/tail.h"
#include "proto/ddp.pb-c.h"

/* Which of the workers' output comes to ddpctl's own, and behind what: --redirects, --tee and
 * --local-ranks-filter over the default (one rank raw, several in whole lines, behind [rank] on a terminal).
 * The log files have everything whatever these say. */

/* True when a line of the rank's is shown; *teed: behind the label of --tee. */
bool run_output_shown(const struct launch *l, int local_rank, bool standard_error, bool *teed);
/* "[trainer0]:", or the pattern with ${role_name}, ${rank}, ${local_rank}, ${hostname}. The caller frees. */
char *run_output_label(const char *role, int rank, int local_rank, const char *pattern);
/* Adds the files of the node's ranks to the tail, which is open on their generation. */
void run_output_add(struct tail *t, const struct launch *l, const Ddp__V1__JobStatus *job, const char *node);

#endif
