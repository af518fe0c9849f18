#ifndef DDP_CLIENT_RUN_BATCH_TASKMATES_H
#define DDP_CLIENT_RUN_BATCH_TASKMATES_H

#include <stdint.h>

#include "base/err.h"

/* The tasks of one step on one node, all of which execute this ddpctl command. One of them leads and runs the
 * job; the others wait for it and exit with its exit code. They meet at an abstract unix socket of this user,
 * which exists on this node only and leaves nothing behind when they die. The leader listens from its start
 * on and answers at its end. */

struct taskmates {
    int fd;           /* the listening socket; -1: this task does not lead */
    int64_t most;     /* number of other tasks; -1: unknown */
    int64_t until_ms; /* until when the leader waits for them to connect (boot) */
};

/* name: the same for all tasks of the node. FAILED_PRECONDITION: another task leads already. */
MUST_CHECK enum err_code taskmates_lead(struct taskmates *t, const char *name, int64_t mates, struct err *e);
/* Sends the exit code to the other tasks. Tasks start together, so one that has not connected 30 s after the
 * leader's start is not waited for. */
void taskmates_end(struct taskmates *t, int code);

/* Waits for a leader (60 s), then without limit for its end. Signals that end a step are ignored here, since
 * the leader gets them too. UNAVAILABLE: there is no leader, or it was killed. */
MUST_CHECK enum err_code taskmates_follow(const char *name, int *code, struct err *e);

#endif
