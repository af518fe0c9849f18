#ifndef DDP_CLIENT_RUN_WORKER_OUTPUT_H
#define DDP_CLIENT_RUN_WORKER_OUTPUT_H

#include "client/run/log_tail.h"
#include "client/run/run_request.h"
#include "proto/ddp.pb-c.h"

/* Which of the workers' output ddpctl prints, and with which label: --redirects, --tee and
 * --local-ranks-filter change the default. By default the output of a single rank passes unchanged, and that
 * of several ranks is merged by lines (output_merge.h), with [rank] before each line on a terminal. The log
 * files always have everything. */

/* True if ddpctl prints the rank's output. *teed: it gets the label of --tee. */
bool worker_output_shown(const struct run_request *request, int local_rank, bool standard_error, bool *teed);
/* "[trainer0]:", or the pattern with ${role_name}, ${rank}, ${local_rank} and ${hostname} replaced. The
 * caller frees. */
char *worker_output_label(const char *role, int rank, int local_rank, const char *pattern);
/* Adds the log files of the node's ranks to the tail, which is open on their generation. */
void worker_output_add(struct log_tail *t, const struct run_request *request, const Ddp__V1__JobStatus *job,
                       const char *node);

#endif
