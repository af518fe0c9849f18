#ifndef DDP_DAEMON_SUPERVISOR_CHILD_H
#define DDP_DAEMON_SUPERVISOR_CHILD_H

#include <sys/resource.h>
#include <sys/types.h>

#include "daemon/supervisor/protocol/spawn_order.h"

/* Makes a running process of an order. The caller has only one thread, so it may fork. */

struct child {
    pid_t pid;
    int report_fd; /* non-blocking read end of DDP_REPORT_FD */
    int exec_fd;   /* non-blocking read end: end of file when the command runs, else a struct child_failure */
};

/* Makes the log files and forks, into the cgroup unless it is NULL. The child leads a session of its own,
 * dies with the caller, and has default signal handling, stdin from /dev/null, only its own descriptors, and
 * `files` as its soft limit of open files (0: the caller's). */
MUST_CHECK enum err_code child_fork(const struct spawn_order *order, const char *cgroup, rlim_t files,
                                    struct child *out, struct err *e);

/* The step of the start that failed in the child, and why. */
struct child_failure {
    int stage, errnum;
};
enum err_code child_explain(const struct child_failure *why, const struct spawn_order *order,
                            const char *node, struct err *e); /* sets *e and returns its code, never OK */

#endif
