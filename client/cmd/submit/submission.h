#ifndef DDP_CLIENT_CMD_SUBMIT_SUBMISSION_H
#define DDP_CLIENT_CMD_SUBMIT_SUBMISSION_H

#include <stdbool.h>

#include "client/link.h"

/* Sends a job to the coordinator. Any thread. */

struct submission {
    const char *text;  /* of the job file */
    char *const *env;  /* "NAME=value" texts for the workers, ended by NULL; or NULL */
    int64_t continues; /* the job whose snapshots it continues from, 0: none */
    bool inherits;     /* `continues` has an environment, which the new job is to get */
    bool resume;       /* continue from another job's snapshots in snapshot.dir */
    bool now;          /* refuse a job that cannot start at once */
    bool
        own_cluster; /* of `ddpctl run`, whose nodes may come later: the coordinator's warnings are left out */
};
/* Sends the job. While the coordinator is UNAVAILABLE the call is repeated for 10 s with the same request id,
 * so that the job is created once. The coordinator's warnings go to stderr. */
MUST_CHECK enum err_code submit_send(struct link *link, const struct submission *submission, int64_t *job,
                                     struct err *e);
/* Submits the job file of an ended job again, changed by `set` (NULL: unchanged), as a job that continues from its last
 * snapshot, with its environment. The caller frees *name. */
MUST_CHECK enum err_code submit_resumed(struct link *link, int64_t old, char **set, int64_t *job, char **name,
                                        struct err *e);

#endif
