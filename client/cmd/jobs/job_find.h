#ifndef DDP_CLIENT_CMD_JOBS_JOB_FIND_H
#define DDP_CLIENT_CMD_JOBS_JOB_FIND_H

#include "client/cmd/jobs/job_pages.h"
#include "client/cmd/jobs/job_reference.h"
#include "client/connect.h"

/* Finds the jobs that a user names (job_reference.h). The coordinator is asked for its jobs only if a reference needs
 * them. */

/* The name under which the coordinator knows the caller; the caller frees. */
MUST_CHECK enum err_code job_find_user(struct link *link, char **name, struct err *e);
MUST_CHECK enum err_code jobs_find(struct link *link, char *const *references, size_t count,
                                   struct job_numbers *out, struct err *e);
/* For a command that takes one job. */
MUST_CHECK enum err_code job_find(struct link *link, const char *command, const char *reference, int64_t *job,
                                  struct err *e);

/* Opens the connection, and runs the action for each job that the arguments name, even after one has failed. Returns
 * EXIT_DONE if all succeeded, and else the exit code of the first failure. one_for: the command, if it takes one job only;
 * NULL: it takes several. */
int jobs_run(struct invocation *in, const char *one_for,
             int (*act)(struct link *link, int64_t job, const void *context), const void *context);
/* The same for an action that has nothing to print but its error. */
int jobs_each(struct invocation *in,
              enum err_code (*act)(struct link *link, int64_t job, void *context, struct err *e),
              void *context);

#endif
