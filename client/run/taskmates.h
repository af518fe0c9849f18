#ifndef DDP_CLIENT_RUN_TASKMATES_H
#define DDP_CLIENT_RUN_TASKMATES_H

#include <stdint.h>

#include "base/err.h"

/* Several tasks of a batch system's step on one node, each of them this same ddpctl: one leads and runs, the
 * others wait and end with its exit code. They meet at a name of the node alone (an abstract unix socket of
 * this user), so nothing stays when they die. The leader listens from the start and answers at its end. */

struct taskmates {
    int fd;           /* -1: nobody waits */
    int64_t most;     /* how many may come; -1: not known */
    int64_t until_ms; /* by when they have come, if they come at all */
};

/* name: the same for all tasks of one step on one node. FAILED_PRECONDITION: another leads there already. */
MUST_CHECK enum err_code taskmates_lead(struct taskmates *t, const char *name, int64_t mates, struct err *e);
/* Gives every mate the exit code. Tasks start together: one that has not come 30 s after the leader is not
 * waited for any longer. */
void taskmates_end(struct taskmates *t, int code);

/* Waits for a leader (60 s), then for its end, however long. Signals that end a step reach the leader too:
 * here they are ignored. UNAVAILABLE: none came, or it was killed. */
MUST_CHECK enum err_code taskmates_follow(const char *name, int *code, struct err *e);

#endif
