#include "daemon/agent/observe/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"

/* Reads /proc/<pid>/<name>. The text ends with a NUL and is cut to size. False: it cannot be read. */
static bool proc_file_read(char *out, size_t size, const char *name, pid_t pid)
{
    CLEANUP(close_fd) int fd = -1;
    char path[64];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static int64_t ticks_to_ms(long long ticks)
{
    long per_second = sysconf(_SC_CLK_TCK);

    return ticks * 1000 / (per_second > 0 ? per_second : 100);
}

bool process_read(pid_t pid, struct process *out)
{
    char text[1024], *open_paren, *rest;
    long long user, kernel, child_user, child_kernel, started, pages;
    int parent, group, session, threads;
    char state;

    if (!proc_file_read(text, sizeof(text), "stat", pid))
        return false;
    open_paren = strchr(text, '(');
    rest = strrchr(text, ')'); /* the last one: the name in parentheses may hold any character */
    if (!open_paren || !rest ||
        sscanf(rest + 1,
               " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %lld %lld %lld %lld %*d %*d %d %*d %lld %*u %lld",
               &state, &parent, &group, &session, &user, &kernel, &child_user, &child_kernel, &threads,
               &started, &pages) != 11)
        return false;
    *out = (struct process){.pid = pid,
                            .parent = parent,
                            .session = session,
                            .state = state,
                            .cpu_ms = ticks_to_ms(user + kernel + child_user + child_kernel),
                            .started = started,
                            .memory_bytes = pages * sysconf(_SC_PAGESIZE),
                            .threads = threads};
    *rest = '\0';
    snprintf(out->name, sizeof(out->name), "%s", open_paren + 1);
    return true;
}

bool process_read_io(pid_t pid, int64_t *read_bytes, int64_t *write_bytes)
{
    char text[512];
    const char *in, *out;

    if (!proc_file_read(text, sizeof(text), "io", pid))
        return false;
    in = strstr(text, "\nread_bytes: ");
    out = strstr(text, "\nwrite_bytes: ");
    if (!in || !out)
        return false;
    *read_bytes = strtoll(in + strlen("\nread_bytes: "), NULL, 10);
    *write_bytes = strtoll(out + strlen("\nwrite_bytes: "), NULL, 10);
    return true;
}

static void process_list_add(struct process_list *list, const struct process *p)
{
    list->items = array_grow(list->items, list->count, &list->cap, sizeof(*list->items));
    list->items[list->count++] = *p;
}

static int process_by_pid(const void *a, const void *b)
{
    const struct process *x = a, *y = b;

    return (x->pid > y->pid) - (x->pid < y->pid);
}

void process_list_all(struct process_list *out)
{
    DIR *d = opendir("/proc");
    struct dirent *entry;

    while (d && (entry = readdir(d))) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        struct process p;

        if (pid > 0 && process_read(pid, &p))
            process_list_add(out, &p);
    }
    if (d)
        closedir(d);
    if (out->count)
        qsort(out->items, out->count, sizeof(*out->items), process_by_pid);
}

void process_list_release(struct process_list *list)
{
    free(list->items);
    *list = (struct process_list){0};
}

static const struct process *process_find(const struct process_list *all, pid_t pid)
{
    struct process key = {.pid = pid};

    return all->count ? bsearch(&key, all->items, all->count, sizeof(key), process_by_pid) : NULL;
}

static bool process_descends(const struct process_list *all, const struct process *p, pid_t ancestor)
{
    /* bounded: a table that is read while processes come and go may hold a circle of parents */
    for (size_t depth = 0; p && depth < all->count; depth++) {
        if (p->parent == ancestor)
            return true;
        p = process_find(all, p->parent);
    }
    return false;
}

void process_tree(const struct process_list *all, pid_t first, struct process_list *out)
{
    const struct process *root = process_find(all, first);

    if (!root)
        return;
    process_list_add(out, root);
    for (size_t i = 0; i < all->count; i++) {
        const struct process *p = &all->items[i];

        if (p->pid != first && (p->session == first || process_descends(all, p, first)))
            process_list_add(out, p);
    }
}

void process_add_cgroup(const struct process_list *all, const char *cgroup, struct process_list *out)
{
    CLEANUP(free_text) char *path = cgroup ? xasprintf("%s/cgroup.procs", cgroup) : NULL;
    FILE *f = path ? fopen(path, "re") : NULL;
    size_t known = out->count;
    int pid;

    while (f && fscanf(f, "%d", &pid) == 1) {
        const struct process *p = process_find(all, pid);
        bool there = !p;

        for (size_t i = 0; i < known && !there; i++)
            there = out->items[i].pid == pid;
        if (!there)
            process_list_add(out, p);
    }
    if (f)
        fclose(f);
}

/* ---- what a process waits for */

/* fd: 1 if the call's first argument is a descriptor, else 0. */
static const struct {
    long number;
    const char *name;
    int fd;
} calls[] = {
    {SYS_futex, "futex", 0},
    {SYS_read, "read", 1},
    {SYS_pread64, "pread", 1},
    {SYS_readv, "readv", 1},
    {SYS_write, "write", 1},
    {SYS_pwrite64, "pwrite", 1},
    {SYS_writev, "writev", 1},
    {SYS_recvfrom, "recv", 1},
    {SYS_recvmsg, "recvmsg", 1},
    {SYS_sendto, "send", 1},
    {SYS_sendmsg, "sendmsg", 1},
    {SYS_accept, "accept", 1},
    {SYS_accept4, "accept", 1},
    {SYS_connect, "connect", 1},
    {SYS_fsync, "fsync", 1},
    {SYS_fdatasync, "fdatasync", 1},
    {SYS_flock, "flock", 1},
    {SYS_fcntl, "fcntl", 1},
    {SYS_ioctl, "ioctl", 1},
    {SYS_openat, "open", 0},
    {SYS_newfstatat, "stat", 0},
    {SYS_ppoll, "poll", 0},
    {SYS_pselect6, "select", 0},
    {SYS_epoll_pwait, "epoll_wait", 0},
    {SYS_wait4, "wait", 0},
    {SYS_waitid, "wait", 0},
    {SYS_nanosleep, "nanosleep", 0},
    {SYS_clock_nanosleep, "nanosleep", 0},
    {SYS_clone, "clone", 0},
    {SYS_clone3, "clone", 0},
    {SYS_rt_sigsuspend, "sigsuspend", 0},
    {SYS_rt_sigtimedwait, "sigwait", 0},
#ifdef SYS_poll
    {SYS_poll, "poll", 0},
    {SYS_select, "select", 0},
    {SYS_epoll_wait, "epoll_wait", 0},
    {SYS_pause, "pause", 0},
    {SYS_vfork, "vfork", 0},
    {SYS_open, "open", 0},
    {SYS_stat, "stat", 0},
#endif
};

static void descriptor_describe(pid_t pid, unsigned long long fd, char target[PROCESS_TARGET])
{
    char path[64];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%d/fd/%llu", (int)pid, fd);
    n = readlink(path, target, PROCESS_TARGET - 1);
    target[n > 0 ? n : 0] = '\0';
    if (!strncmp(target, "socket:", 7))
        target[6] = '\0';
    else if (!strncmp(target, "pipe:", 5))
        target[4] = '\0';
}

/* False: the process is in no system call, or this account may not see it. */
static bool system_call_read(pid_t pid, char call[PROCESS_CALL], char target[PROCESS_TARGET])
{
    unsigned long long argument;
    char text[256];
    long number;

    if (!proc_file_read(text, sizeof(text), "syscall", pid) ||
        sscanf(text, "%ld %llx", &number, &argument) != 2 || number < 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        if (calls[i].number != number)
            continue;
        snprintf(call, PROCESS_CALL, "%s", calls[i].name);
        if (calls[i].fd)
            descriptor_describe(pid, argument, target);
        return true;
    }
    snprintf(call, PROCESS_CALL, "system call %ld", number);
    return true;
}

void process_wait(pid_t pid, char call[PROCESS_CALL], char target[PROCESS_TARGET])
{
    call[0] = target[0] = '\0';
    if (system_call_read(pid, call, target))
        return;
    if (!proc_file_read(call, PROCESS_CALL, "wchan", pid) || !strcmp(call, "0"))
        call[0] = '\0';
}

/* Lines are "[<0>] function+0x12/0x34". */
char **process_stack(pid_t pid, size_t most)
{
    char text[4096], *line, *rest = text;
    char **names = NULL;

    if (!proc_file_read(text, sizeof(text), "stack", pid))
        return NULL;
    while ((line = strsep(&rest, "\n")) && strv_len(names) < most) {
        char *name = strchr(line, ' ');

        if (!name)
            continue;
        name[1 + strcspn(name + 1, "+")] = '\0';
        names = strv_append(names, name + 1);
    }
    return names;
}
