#ifndef DDP_DAEMON_AGENT_OBSERVE_PROCESS_H
#define DDP_DAEMON_AGENT_OBSERVE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Processes as /proc shows them. Only files that the kernel can answer without the process's memory are read:
 * cmdline and environ would block on a process that is stuck in a page fault. Any thread. */

struct process {
    pid_t pid, parent, session;
    char state; /* R S D T t Z I X */
    char name[32];
    int64_t cpu_ms;  /* its own, and that of the children that it has waited for */
    int64_t started; /* clock ticks since boot: differs when the pid belongs to another process by now */
    int64_t memory_bytes;
    int threads;
};

struct process_list {
    struct process *items;
    size_t count, cap;
};

bool process_read(pid_t pid, struct process *out);    /* false: there is no such process */
void process_list_all(struct process_list *out);      /* every process of the machine, ordered by pid */
void process_list_release(struct process_list *list); /* for CLEANUP too */

/* Bytes that the process, and the children that it has waited for, read from storage and wrote to it. False: unknown. */
bool process_read_io(pid_t pid, int64_t *read_bytes, int64_t *write_bytes);

/* Appends to *out the process itself, then its descendants and the members of its session. Appends nothing
 * when the process is gone. `all` is ordered by pid. */
void process_tree(const struct process_list *all, pid_t first, struct process_list *out);

#define PROCESS_CALL 64
#define PROCESS_TARGET 128
/* Appends to *out those processes of the cgroup (a path, or NULL) that it lacks because they have left the process tree and
 * the session. */
void process_add_cgroup(const struct process_list *all, const char *cgroup, struct process_list *out);

/* What the process waits for: `call` is the system call ("epoll_wait"), or the kernel's function, or empty;
 * `target` is what the call's descriptor refers to ("socket", "pipe", a path), or empty. */
void process_wait(pid_t pid, char call[PROCESS_CALL], char target[PROCESS_TARGET]);
/* The process's stack in the kernel, innermost function first, at most `most` names. The caller frees the
 * list with strv_free. NULL: it may not be read. */
char **process_stack(pid_t pid, size_t most);

#endif
