#ifndef DDP_DAEMON_SUPERVISOR_GROUP_H
#define DDP_DAEMON_SUPERVISOR_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "base/err.h"

/* A job's workers on one node, and the agent that may or may not be there. One thread, one poll(2). */

struct group_options {
    const char *dir; /* <state>/run/<job> */
    const char *node;
    int64_t job;
    rlim_t files;   /* soft limit of open files of the workers; 0: as it is */
    int control_fd; /* an agent that is connected already, or -1 */
    bool attached;  /* ends with that agent: all is killed when it is gone */
};

struct group;
MUST_CHECK enum err_code group_open(struct group **out, const struct group_options *options, struct err *e);
/* Returns when all spawns have ended and are forgotten (or, with no agent there, are safe on disk). */
void group_run(struct group *g);
void group_free(struct group *g);

#endif
