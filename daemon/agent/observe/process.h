#ifndef DDP_DAEMON_AGENT_OBSERVE_PROCESS_H
#define DDP_DAEMON_AGENT_OBSERVE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Processes as /proc shows them. Only files that the kernel answers without the process's own memory are read
 * (never cmdline or environ, which wait for a process that is stuck in a page fault). Any thread. */

struct process {
    pid_t pid, parent, session;
    char state; /* R S D T t Z I X */
    char name[32];
    int64_t cpu_ms;  /* its own and that of children it has waited for */
    int64_t started; /* clock ticks since boot: tells a number's next process from this one */
    int64_t memory_bytes;
    int threads;
};

struct process_list {
    struct process *items;
    size_t count, cap;
};

bool process_read(pid_t pid, struct process *out);    /* false: there is none */
void process_list_all(struct process_list *out);      /* every process of the machine, by number */
void process_list_release(struct process_list *list); /* for CLEANUP too */

/* Appends to *out the process and all that came of it: descendants, and whoever shares its session. The first
 * is the process itself; none when it is not there. `all` is by number. */
void process_tree(const struct process_list *all, pid_t first, struct process_list *out);

#define PROCESS_CALL 64
#define PROCESS_TARGET 128
/* What it waits in: the system call ("epoll_wait"), else the kernel's function, else empty; and what the
 * call's descriptor is ("socket", "pipe", a path), else empty. */
void process_wait(pid_t pid, char call[PROCESS_CALL], char target[PROCESS_TARGET]);
/* The kernel's stack, innermost first, at most `most` names in an array that the caller frees with strv_free;
 * NULL where it may not be read. */
char **process_stack(pid_t pid, size_t most);

#endif
