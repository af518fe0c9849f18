#ifndef DDP_DAEMON_SUPERVISOR_CHILD_H
#define DDP_DAEMON_SUPERVISOR_CHILD_H

#include <sys/resource.h>
#include <sys/types.h>

#include "daemon/supervisor/protocol/control.h"

/* From an order to a running process. The caller is single-threaded. */

struct child {
    pid_t pid;
    int report_fd; /* read end, non-blocking: what the worker writes to DDP_REPORT_FD */
    int exec_fd;   /* read end, non-blocking: EOF when the command runs, else why not (child_failure) */
};

/* Makes the log files, forks, and puts the child into the cgroup when there is one. The child is a session
 * leader, has the soft limit of open files (0: the caller's), dies with the caller, has default signals,
 * stdin from /dev/null and only its own descriptors. */
MUST_CHECK enum err_code child_start(const struct spawn_order *order, const char *cgroup, rlim_t files,
                                     struct child *out, struct err *e);

/* What the child could not do, as it wrote it to exec_fd. */
struct child_failure {
    int stage, errnum;
};
enum err_code child_explain(const struct child_failure *why, const struct spawn_order *order,
                            const char *node, struct err *e); /* always fails, with the message */

#endif
