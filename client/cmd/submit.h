#ifndef DDP_CLIENT_CMD_SUBMIT_H
#define DDP_CLIENT_CMD_SUBMIT_H

#include "client/cmd/job_text.h"
#include "client/connect.h"

/* From arguments to a job's text: JOB.yaml, or -- COMMAND. */
MUST_CHECK enum err_code submit_text(const struct option_arguments *args, const struct job_flags *flags, char **text,
                                     struct err *e);

struct submission {
    const char *text; /* of the job file */
    char *const *env; /* carried */
    int64_t continues;
    bool resume;
};
/* Sends it with a request id of its own and the same id again while the coordinator is UNAVAILABLE (10 s):
 * made once. The coordinator's warnings go to stderr. */
MUST_CHECK enum err_code submit_send(struct link *link, const struct submission *submission, int64_t *job,
                                     struct err *e);
/* What submit and resume do after: print the number, or follow. Returns the exit code. */
int submit_after(struct link *link, int64_t job, const char *name, bool follow, const char *output);

#endif
