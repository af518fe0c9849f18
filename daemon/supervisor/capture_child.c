#include "daemon/supervisor/capture_child.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/capture/capture.h"
#include "daemon/supervisor/child.h"

enum { STDOUT_FD = 3, STDERR_FD = 4, FIRST_CLOSED_FD = 5 };

void capture_child_init(struct capture_child *c)
{
    *c = (struct capture_child){.fd = -1, .end_fd = -1, .logs = {-1, -1}};
}

/* Opens the log for reading: the supervisor's own descriptors are for appending only. */
static int log_reopen(int fd)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

void capture_child_plan(struct capture_child *c, const struct spawn_order *order,
                        const struct log_files *logs, int64_t now)
{
    capture_child_stop(c); /* ends the process of an earlier start of this worker */
    if (!strv_len(order->capture))
        return;
    c->source = strcmp(order->capture[0], "tensorboard") == 0 ? "its TensorBoard files" : "its output";
    c->logs[0] = log_reopen(logs->out);
    c->logs[1] = log_reopen(logs->err);
    c->state = CAPTURE_DUE;
    c->at = now + CAPTURE_DELAY_MS;
    if (c->logs[0] < 0 || c->logs[1] < 0)
        capture_child_stop(c);
}

struct capture_plan {
    const struct spawn_order *order;
    const struct passwd *user;
    pid_t parent;
    int end, out, logs[2]; /* numbers above those that the descriptors get in the child */
    char **argv;
};

static _Noreturn void capture_child_main(const struct capture_plan *p)
{
    char *env[] = {NULL}; /* the agent's environment may hold secrets */
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    if (!child_detach(p->user, p->parent) && dup2(p->end, 0) >= 0 && dup2(p->out, 1) >= 0 &&
        dup2(null, 2) >= 0 && dup2(p->logs[0], STDOUT_FD) >= 0 && dup2(p->logs[1], STDERR_FD) >= 0 &&
        (!p->order->workdir || !chdir(p->order->workdir))) { /* DIR may be relative */
        (void)syscall(SYS_close_range, FIRST_CLOSED_FD, ~0u, 1u << 2 /* CLOSE_RANGE_CLOEXEC */);
        execve("/proc/self/exe", p->argv, env);
    }
    _exit(127);
}

static enum err_code lifted_pipe(int *reader, int *writer, struct err *e)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC))
        return err_sys(e, errno, "pipe");
    *reader = fds[0];
    *writer = fds[1];
    return descriptor_lift(reader, e) || descriptor_lift(writer, e) ? e->code : ERR_OK;
}

static void argv_free(char ***argv)
{
    strv_free(*argv);
}

static enum err_code capture_start(struct capture_child *c, const struct spawn_order *order,
                                   int64_t started_wall_ms, struct err *e)
{
    CLEANUP(free_text) char *started = xasprintf("%" PRId64, started_wall_ms);
    CLEANUP(argv_free) char **argv = strv_append(NULL, "ddp-capture");
    CLEANUP(close_fd) int end = -1;
    CLEANUP(close_fd) int out = -1;
    struct passwd *user;
    struct capture_plan plan = {.order = order, .parent = getpid()};

    argv = strv_append(argv, CAPTURE_WORD);
    argv = strv_append(argv, order->capture[0]);
    argv = strv_append(argv, started);
    if (order->capture[1])
        argv = strv_append(argv, order->capture[1]);
    if (child_account(order->user, &user, e) || lifted_pipe(&end, &c->end_fd, e) ||
        lifted_pipe(&c->fd, &out, e) || descriptor_lift(&c->logs[0], e) || descriptor_lift(&c->logs[1], e))
        return e->code;
    plan.user = user;
    plan.argv = argv;
    plan.end = end;
    plan.out = out;
    plan.logs[0] = c->logs[0];
    plan.logs[1] = c->logs[1];
    (void)fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->pid = fork();
    if (!c->pid)
        capture_child_main(&plan);
    if (c->pid < 0) {
        c->pid = 0;
        return err_sys(e, errno, "fork");
    }
    c->state = CAPTURE_RUNS;
    return ERR_OK;
}

static void capture_try_start(struct capture_child *c, const struct spawn_order *order,
                              int64_t started_wall_ms)
{
    struct err e;

    if (capture_start(c, order, started_wall_ms, &e) == ERR_OK)
        return;
    log_warn("capture_not_started", "spawn=%" PRId64 " why=%s", order->spawn, LOG_Q(e.msg));
    capture_child_stop(c);
}

int64_t capture_child_tick(struct capture_child *c, const struct spawn_order *order, int64_t started_wall_ms,
                           int64_t now)
{
    if (c->state != CAPTURE_DUE)
        return INT64_MAX;
    if (now < c->at)
        return c->at;
    capture_try_start(c, order, started_wall_ms);
    return INT64_MAX;
}

static bool logs_are_empty(const struct capture_child *c)
{
    struct stat st[2];

    return !fstat(c->logs[0], &st[0]) && !fstat(c->logs[1], &st[1]) && !st[0].st_size && !st[1].st_size;
}

int64_t capture_child_finish(struct capture_child *c, const struct spawn_order *order,
                             int64_t started_wall_ms, bool failed, int64_t now)
{
    if (c->state == CAPTURE_DUE && logs_are_empty(c) && strcmp(order->capture[0], "tensorboard") != 0)
        capture_child_stop(c);
    if (c->state == CAPTURE_DUE)
        capture_try_start(c, order, started_wall_ms);
    if (c->state == CAPTURE_RUNS) {
        close_fd(&c->end_fd);
        c->end_fd = -1;
        c->state = CAPTURE_ENDS;
        c->at = now + (failed ? CAPTURE_HURRY_MS : CAPTURE_REST_MS);
    }
    if (c->state != CAPTURE_ENDS)
        return 0;
    if (now < c->at)
        return c->at;
    log_warn("capture_cut", "spawn=%" PRId64, order->spawn);
    capture_child_stop(c);
    return 0;
}

void capture_child_read(struct capture_child *c, size_t limit, void (*fn)(void *, const char *line),
                        void *ctx)
{
    char chunk[16384];

    while (c->fd >= 0 && limit) {
        ssize_t n = read(c->fd, chunk, sizeof(chunk) < limit ? sizeof(chunk) : limit);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            capture_child_stop(c);
            return;
        }
        report_feed(&c->reader, chunk, (size_t)n, fn, ctx);
        limit -= (size_t)n;
    }
}

void capture_child_stop(struct capture_child *c)
{
    const pid_t pid = c->pid;

    /* Does not wait for the process: on a file system that hangs, even SIGKILL takes a long time. */
    if (pid)
        (void)kill(pid, SIGKILL);
    close_fd(&c->fd);
    close_fd(&c->end_fd);
    close_fd(&c->logs[0]);
    close_fd(&c->logs[1]);
    report_reader_release(&c->reader);
    capture_child_init(c);
    c->pid = pid;
}

void capture_child_reaped(struct capture_child *c, pid_t pid)
{
    if (c->pid == pid)
        c->pid = 0;
}
