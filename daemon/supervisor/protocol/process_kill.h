#ifndef DDP_DAEMON_SUPERVISOR_PROTOCOL_PROCESS_KILL_H
#define DDP_DAEMON_SUPERVISOR_PROTOCOL_PROCESS_KILL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Finds and kills every process of a spawn that is not in its cgroup: the kernel may not allow cgroups, and a process
 * may have moved itself to another one. A supervisor is a subreaper, so it finds them among its descendants; when a
 * supervisor has died, the marks in their environment find them. Each call kills the processes that it finds, and
 * returns how many had not ended. The caller repeats the call until there are none. `killed` may be NULL. */

/* The processes of a spawn that were sent SIGKILL. The caller keeps the list between calls, starting with {0}, because a dying
 * process cannot be found again: its environment is gone, and cgroup.procs may not list it. Yet it may still hold files and
 * ports. A process that was dying before the first call may be missed. */
struct process_list {
    struct process_id {
        pid_t pid;
        unsigned long long started; /* in clock ticks since boot, because pids are used again */
    } * items;
    size_t count, cap;
};
void process_list_add(struct process_list *list, pid_t pid); /* NULL as the list: does nothing */
void process_list_release(struct process_list *list);

/* Distinguishes one spawn's processes from those of the supervisor's other spawns. */
struct process_mark {
    pid_t main;        /* its first process; 0: none was ever started */
    bool over;         /* the first process has ended and was reaped */
    const char *id;    /* DDP_SPAWN_ID in the environment ... */
    const char *owner; /* ... and DDP_AGENT_ID */
    /* first processes of the other spawns; if there are none, every descendant belongs to this spawn */
    const pid_t *others;
    size_t other_count;
    const pid_t *spared; /* children of the caller that belong to no spawn, nor do their descendants */
    size_t spared_count;
};
/* Descendants of the calling process that belong to the spawn. */
int descendants_kill(const struct process_mark *mark, struct process_list *killed);
/* Processes of the whole machine whose environment carries both marks and which the caller may kill; never
 * the caller itself. */
int marked_kill(const char *id, const char *owner, struct process_list *killed);

/* Whether the process is ending, or has ended and was not reaped. The kernel closes a process's files before its parent
 * hears of the end; with much memory or a GPU to release, up to a second passes between the two. */
bool process_exiting(pid_t pid);

#endif
