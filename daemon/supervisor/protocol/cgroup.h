#ifndef DDP_DAEMON_SUPERVISOR_PROTOCOL_CGROUP_H
#define DDP_DAEMON_SUPERVISOR_PROTOCOL_CGROUP_H

#include <stdbool.h>

#include "base/err.h"
#include "daemon/supervisor/protocol/process_kill.h"

/* A cgroup v2 for each spawn, if the kernel allows this process to make one. A cgroup is named by its
 * path. */

/* Makes one beside the caller's own processes; `name` is one path component. *out is NULL, and the result OK,
 * where there is no cgroup that this process may write. The caller frees *out. */
MUST_CHECK enum err_code cgroup_make(const char *name, char **out, struct err *e);
int cgroup_open(const char *cgroup); /* for CLONE_INTO_CGROUP; -1 when it is gone */
MUST_CHECK enum err_code cgroup_enter(const char *cgroup, int pid, struct err *e); /* moves a process there */
void cgroup_move_all(const char *from, const char *to); /* processes that cannot be moved stay */
/* Sends SIGKILL to all members, and returns how many there were. Adds them to `killed` unless that is NULL: a member may leave the
 * cgroup before it has closed its files, and process_kill.h then waits for it. */
int cgroup_kill(const char *cgroup, struct process_list *killed);
void cgroup_remove(const char *cgroup); /* only an empty one can be removed */
/* How many processes the kernel has killed for want of memory, of that cgroup, or of the whole machine since boot. -1: it does
 * not count them. */
long long cgroup_oom_kills(const char *cgroup);
long long kernel_oom_kills(void);

#endif
