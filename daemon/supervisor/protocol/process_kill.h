#ifndef DDP_DAEMON_SUPERVISOR_PROTOCOL_PROCESS_KILL_H
#define DDP_DAEMON_SUPERVISOR_PROTOCOL_PROCESS_KILL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* Finding and ending every process of a spawn, whatever it did to hide: a cgroup of its own where the kernel
 * lets us make one, else the supervisor's descendants (it is a subreaper), else the spawn's mark in the
 * environment. Each call kills what it sees now and returns how many members were alive; the caller repeats
 * until none is. */

/* A new cgroup v2 beside our own processes. NULL in *out, and OK, where there is none that we may write. The
 * caller frees; `name` is one path component. */
MUST_CHECK enum err_code cgroup_make(const char *name, char **out, struct err *e);
int cgroup_open(const char *cgroup); /* for CLONE_INTO_CGROUP; -1 when it is gone */
int cgroup_kill(const char *cgroup);
void cgroup_remove(const char *cgroup);
bool cgroup_out_of_memory(const char *cgroup); /* false as well where the kernel does not count it */
long long kernel_oom_kills(void);              /* since boot, of the machine; -1: unknown */

/* How one spawn's processes are told apart. */
struct proc_mark {
    pid_t main;          /* its first process, 0: none was ever started */
    bool over;           /* which has ended and was reaped */
    const char *id;      /* DDP_SPAWN_ID in the environment ... */
    const char *owner;   /* ... and DDP_AGENT_ID */
    const pid_t *others; /* the first processes of the other spawns; none: every descendant is this one's */
    size_t other_count;
};
/* Descendants of the calling process that belong to the spawn. Zombies do not count. */
int descendants_kill(const struct proc_mark *mark);
/* Any process of the machine whose environment carries both marks and which we may kill; never the caller. */
int marked_kill(const char *id, const char *owner);

/* It ends, or has ended and was not waited for: the kernel closes its files before its parent hears of it,
 * and with much memory or a GPU to let go that can be a second before. */
bool process_exiting(pid_t pid);

#endif
