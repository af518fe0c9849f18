#ifndef DDP_DAEMON_SUPERVISOR_CHILD_H
#define DDP_DAEMON_SUPERVISOR_CHILD_H

#include <pwd.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "daemon/supervisor/protocol/log_place.h"
#include "daemon/supervisor/protocol/spawn_order.h"
#include "daemon/supervisor/pseudo_terminal.h"

/* Starts the process of an order: a new process, or a spare (spare.h). The caller has only one thread, so it may
 * fork. */

struct spares;

struct child {
    pid_t pid;
    int report_fd;  /* non-blocking read end of DDP_REPORT_FD */
    int control_fd; /* the supervisor's end of DDP_CONTROL_FD; -1: none, as for a native worker */
    int exec_fd; /* non-blocking read end: end of file when the command runs, else a struct child_failure */
    struct pseudo_terminal terminal; /* of a child in the foreground; master -1: none */
    struct log_files logs;           /* for log_times.h */
    bool
        warm; /* a spare becomes the rank. Then it writes CHILD_BEGUN to exec_fd; an end of file means that it has ended before */
};

/* Makes the log files and forks, into the cgroup unless it is NULL. The child leads a session of its own, dies with the
 * caller, and has default signal handling, only its own descriptors, and `files` as its soft limit of open files (0:
 * the caller's). An order for the foreground gets a pseudo-terminal if `link` has a socket, else the caller's stdin;
 * all other children read /dev/null. spares: one of these may become the rank; NULL: always start a new process. */
MUST_CHECK enum err_code child_fork(const struct spawn_order *order, const char *cgroup, rlim_t files,
                                    const struct terminal_link *link, struct spares *spares,
                                    struct child *out, struct err *e);
/* Forks a child that belongs to no rank yet. Its descriptor 3 is the socket; 0 to 2 are /dev/null. */
MUST_CHECK enum err_code child_fork_idle(const struct spawn_order *order, const char *cgroup, rlim_t files,
                                         int socket, pid_t *pid, struct err *e);

/* ---- for other children of the supervisor that are forked and executed */

/* Finds the account of a name. *out is NULL if the account need not change, else it is valid until the next look-up.
 * NOT_FOUND: there is no such account; any other error: it cannot be looked up now. */
MUST_CHECK enum err_code child_account(const char *name, struct passwd **out, struct err *e);
/* In the child: a session of its own, default signal handling, the account (NULL: none), and death with the parent.
 * Returns 0, or 1 and errno if the account could not be taken, or 2 if the rest failed. */
int child_detach(const struct passwd *user, pid_t parent);
/* Gives a descriptor a number of 32 or more, so that no dup2 of a child to a small number overwrites it. */
MUST_CHECK enum err_code descriptor_lift(int *fd, struct err *e);

#define CHILD_BEGUN (-1) /* as the stage: nothing has failed */

/* The step of the start that failed in the child, and why. */
struct child_failure {
    int stage, errnum;
};
enum err_code child_explain(const struct child_failure *why, const struct spawn_order *order,
                            const char *node, struct err *e); /* sets *e and returns its code, never OK */
/* Whether the node's resources or storage failed, and not the job: the same start may succeed on another node. */
bool child_node_failed(const struct child_failure *why);

#endif
