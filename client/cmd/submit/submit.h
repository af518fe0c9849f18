#ifndef DDP_CLIENT_CMD_SUBMIT_SUBMIT_H
#define DDP_CLIENT_CMD_SUBMIT_SUBMIT_H

#include "client/cmd/submit/command_words.h"
#include "client/cmd/submit/job_text.h"
#include "client/cmd/submit/submission.h"
#include "client/connect.h"

/* What submit, resume and run share: making a job's text, and reporting its number. */

/* The job's text from the arguments: JOB.yaml, or SCRIPT.py or COMMAND with its arguments. */
MUST_CHECK enum err_code submit_text(const struct option_arguments *args, const struct command_form *form,
                                     const struct job_flags *flags, char **text, struct err *e);

/* The variables that are sent with the job: strv_free. A COMMAND gets those that the user's shell would give it: PATH, the
 * virtual environment. A job file has its own `env`, so only --export adds to it. Warns of names that are not
 * set. */
MUST_CHECK enum err_code submit_environment(bool command, char *const *exports, char ***env, struct err *e);

/* Warns of a time without a unit: a batch system may use another unit. */
void submit_warn_units(const struct job_flags *flags);

/* After a submit: prints the job's number, or follows the job. Returns the exit code. */
int submit_after(struct link *link, int64_t job, const char *name, bool follow, const char *output);

#endif
