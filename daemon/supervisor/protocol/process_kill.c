#include "daemon/supervisor/protocol/process_kill.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"

#define FLAG_EXITING 0x4u /* the kernel's PF_EXITING, in the field "flags" of /proc/PID/stat */

struct proc {
    pid_t pid, parent, session;
    unsigned long long started; /* clock ticks since boot */
    int threads;
    bool exiting, zombie; /* the thread that was read, here the first one, is ending; has ended */
    bool ended;           /* all threads have: the process holds nothing any more */
};

struct proc_table {
    struct proc *items;
    size_t count, cap;
};

static void proc_table_release(struct proc_table *t)
{
    free(t->items);
}

/* Reads all but `ended` and `pid`. path: stat of a process or of one of its threads. */
static bool stat_read(const char *path, struct proc *out)
{
    char text[1024], *p, state;
    int parent, group, session, threads;
    unsigned flags;
    unsigned long long started;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    p = strrchr(text, ')'); /* the last one: the name in parentheses may hold any character */
    if (!p || sscanf(p + 1, " %c %d %d %d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d %llu",
                     &state, &parent, &group, &session, &flags, &threads, &started) != 7)
        return false;
    *out = (struct proc){.parent = parent,
                         .session = session,
                         .started = started,
                         .threads = threads,
                         .zombie = state == 'Z' || state == 'X',
                         .exiting = flags & FLAG_EXITING};
    return true;
}

/* Calls fn for each thread of the process until it returns false. Returns whether it never did. */
static bool each_thread(pid_t pid, bool (*fn)(const char *dir, void *ctx), void *ctx)
{
    char path[64], dir[sizeof(path) + NAME_MAX + 1];
    struct dirent *entry;
    bool all = true;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *d = opendir(path);
    while (d && all && (entry = readdir(d))) {
        snprintf(dir, sizeof(dir), "%s/%s", path, entry->d_name);
        all = *entry->d_name == '.' || fn(dir, ctx);
    }
    if (d)
        closedir(d);
    return all;
}

static bool thread_ended(const char *dir, void *unused)
{
    CLEANUP(free_text) char *path = xasprintf("%s/stat", dir);
    struct proc thread;

    (void)unused;
    return !stat_read(path, &thread) || thread.zombie;
}

static bool proc_stat_read(pid_t pid, struct proc *out)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (!stat_read(path, out))
        return false;
    out->pid = pid;
    /* A debugger keeps threads that have ended, so their number alone does not tell. */
    out->ended = out->zombie && (out->threads <= 1 || each_thread(pid, thread_ended, NULL));
    return true;
}

static bool thread_exiting(const char *dir, void *unused)
{
    CLEANUP(free_text) char *path = xasprintf("%s/stat", dir);
    struct proc thread;

    (void)unused;
    return !stat_read(path, &thread) || thread.zombie || thread.exiting;
}

bool process_exiting(pid_t pid)
{
    struct proc p;

    return proc_stat_read(pid, &p) && each_thread(pid, thread_exiting, NULL);
}

static int proc_by_pid(const void *a, const void *b)
{
    const struct proc *x = a, *y = b;

    return (x->pid > y->pid) - (x->pid < y->pid);
}

static void proc_table_read(struct proc_table *t)
{
    DIR *d = opendir("/proc");
    struct dirent *entry;

    while (d && (entry = readdir(d))) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        struct proc p;

        if (pid <= 0 || !proc_stat_read(pid, &p))
            continue;
        t->items = array_grow(t->items, t->count, &t->cap, sizeof(*t->items));
        t->items[t->count++] = p;
    }
    if (d)
        closedir(d);
    if (t->count)
        qsort(t->items, t->count, sizeof(*t->items), proc_by_pid);
}

static bool proc_descends(const struct proc_table *t, const struct proc *p, pid_t ancestor)
{
    /* bounded, because the table is read while processes start and end, so its parents may form a circle */
    for (size_t depth = 0; p && depth < t->count; depth++) {
        struct proc key = {.pid = p->parent};

        if (p->pid == ancestor || p->parent == ancestor)
            return true;
        p = bsearch(&key, t->items, t->count, sizeof(*t->items), proc_by_pid);
    }
    return false;
}

static bool environ_has_entry(const struct buf *env, const char *name, const char *value)
{
    size_t name_len = strlen(name), value_len = strlen(value);

    for (size_t at = 0; at < env->len;) {
        size_t len = strnlen(env->data + at, env->len - at);

        if (len == name_len + 1 + value_len && !memcmp(env->data + at, name, name_len) &&
            env->data[at + name_len] == '=' && !memcmp(env->data + at + name_len + 1, value, value_len))
            return true;
        at += len + 1;
    }
    return false;
}

static void environ_read(const char *dir, struct buf *env)
{
    CLEANUP(free_text) char *path = xasprintf("%s/environ", dir);
    CLEANUP(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    char chunk[16384];
    ssize_t n;

    while (fd >= 0 && env->len < (4u << 20) && (n = read(fd, chunk, sizeof(chunk))) > 0)
        buf_append(env, chunk, (size_t)n);
}

static bool thread_without_environ(const char *dir, void *env)
{
    environ_read(dir, env);
    return !((struct buf *)env)->len;
}

static bool proc_carries_mark(const struct proc *p, const char *id, const char *owner)
{
    CLEANUP(buf_release) struct buf env = {0};
    char dir[64];

    snprintf(dir, sizeof(dir), "/proc/%d", (int)p->pid);
    environ_read(dir, &env);
    if (!env.len && p->threads > 1) /* a thread that has ended has none */
        (void)each_thread(p->pid, thread_without_environ, &env);
    return env.len && environ_has_entry(&env, "DDP_SPAWN_ID", id) &&
           environ_has_entry(&env, "DDP_AGENT_ID", owner);
}

/* Uses a pidfd, because the kernel may give the number to another process before the signal is sent. The pidfd names the
 * process that has the number now, so it is read again. */
static void proc_kill(const struct proc *p)
{
    int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    struct proc now;

    if (fd < 0 && errno == ENOSYS)
        kill(p->pid, SIGKILL);
    if (fd < 0)
        return;
    if (proc_stat_read(p->pid, &now) && now.started == p->started)
        (void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
    close(fd);
}

static bool pid_is_among(pid_t pid, const pid_t *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == pid)
            return true;
    return false;
}

void process_list_release(struct process_list *list)
{
    free(list->items);
}

static bool process_list_has(const struct process_list *list, const struct proc *p)
{
    for (size_t i = 0; list && i < list->count; i++)
        if (list->items[i].pid == p->pid && list->items[i].started == p->started)
            return true;
    return false;
}

static void process_list_keep(struct process_list *list, const struct proc *p)
{
    if (!list || process_list_has(list, p))
        return;
    list->items = array_grow(list->items, list->count, &list->cap, sizeof(*list->items));
    list->items[list->count++] = (struct process_id){.pid = p->pid, .started = p->started};
}

void process_list_add(struct process_list *list, pid_t pid)
{
    struct proc p;

    if (proc_stat_read(pid, &p))
        process_list_keep(list, &p);
}

/* Counts a process that belongs to the spawn or was found before, and kills it. */
static int leftover_kill(const struct proc *p, bool belongs, struct process_list *killed)
{
    if (p->ended || !(belongs || process_list_has(killed, p)))
        return 0;
    process_list_keep(killed, p);
    proc_kill(p);
    return 1;
}

static bool proc_belongs(const struct proc_table *t, const struct proc *p, const struct process_mark *mark)
{
    for (size_t i = 0; i < mark->spared_count; i++)
        if (mark->spared[i] > 0 && (p->session == mark->spared[i] || proc_descends(t, p, mark->spared[i])))
            return false;
    if (!mark->other_count) /* the only spawn: every descendant of the supervisor is its own */
        return true;
    if (mark->main > 0 && (p->session == mark->main || proc_descends(t, p, mark->main)))
        return true;
    /* a daemon has left the session, and its parent is the subreaper: only its environment tells whose process it is */
    return proc_carries_mark(p, mark->id, mark->owner);
}

/* The cheap check for the common case. Processes that a dead process leaves behind become children of the
 * subreaper, the caller. So if the caller's only children are the first processes of the other spawns
 * and those that belong to no spawn, nothing is left of this spawn, and /proc need not be searched. */
static bool children_none_left(const struct process_mark *mark)
{
    FILE *f = mark->over ? fopen("/proc/thread-self/children", "re") : NULL;
    bool stranger = false;
    int pid;

    if (!f)
        return false;
    while (!stranger && fscanf(f, "%d", &pid) == 1) {
        stranger = !pid_is_among(pid, mark->others, mark->other_count) &&
                   !pid_is_among(pid, mark->spared, mark->spared_count);
    }
    fclose(f);
    return !stranger;
}

int descendants_kill(const struct process_mark *mark, struct process_list *killed)
{
    CLEANUP(proc_table_release) struct proc_table t = {0};
    pid_t self = getpid();
    int alive = 0;

    if (children_none_left(mark))
        return 0;
    proc_table_read(&t);
    for (size_t i = 0; i < t.count; i++) {
        const struct proc *p = &t.items[i];

        if (p->pid != self && proc_descends(&t, p, self))
            alive += leftover_kill(p, proc_belongs(&t, p, mark), killed);
    }
    return alive;
}

int marked_kill(const char *id, const char *owner, struct process_list *killed)
{
    CLEANUP(proc_table_release) struct proc_table t = {0};
    int alive = 0;

    proc_table_read(&t);
    for (size_t i = 0; i < t.count; i++) {
        const struct proc *p = &t.items[i];

        if (p->pid != getpid())
            alive += leftover_kill(p, proc_carries_mark(p, id, owner), killed);
    }
    return alive;
}
