#include "daemon/supervisor/child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/crypto/id.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/supervisor/protocol/cgroup.h"
#include "daemon/supervisor/protocol/log_place.h"
#include "daemon/supervisor/spare.h"

enum { REPORT_FD = 3, TOKEN_FD = 4, CONTROL_FD = 5, FIRST_FREE_FD = 6 };
enum stage { STAGE_USER, STAGE_WORKDIR, STAGE_EXEC, STAGE_SETUP };

struct plan {
    const struct spawn_order *order;
    struct passwd *user; /* NULL: no change of account */
    char **env;
    pid_t parent;
    rlim_t files;
    struct log_files logs;                             /* for log_times.h */
    int in, out, err, report, token, control, failure; /* -1: none */
    bool terminal;                                     /* `in` is a pseudo-terminal */
};

static void child_plan_release(struct plan *p)
{
    strv_free(p->env);
    close_fd(&p->in);
    log_files_close(&p->logs);
    close_fd(&p->out);
    close_fd(&p->err);
    close_fd(&p->report);
    close_fd(&p->token);
    close_fd(&p->control);
    close_fd(&p->failure);
}

static _Noreturn void child_fail(const struct plan *p, enum stage stage)
{
    struct child_failure why = {(int)stage, errno};

    if (write(p->failure, &why, sizeof(why)) < 0)
        _exit(126);
    _exit(127);
}

static bool child_become_user(const struct passwd *user)
{
    return !initgroups(user->pw_name, user->pw_gid) && !setgid(user->pw_gid) && !setuid(user->pw_uid);
}

static void signals_reset(void)
{
    sigset_t none;

    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* All sources have higher numbers than the targets (descriptor_lift), so no dup2 overwrites a later source.
 */
static bool descriptors_place(struct plan *p)
{
    /* TIOCSCTTY: ^C and the end of the terminal send signals to the worker's session */
    if (p->terminal && ioctl(p->in, TIOCSCTTY, 0))
        return false;
    if (dup2(p->in, 0) < 0 || dup2(p->out, 1) < 0 || dup2(p->err, 2) < 0 || dup2(p->report, REPORT_FD) < 0)
        return false;
    if (p->token >= 0 ? dup2(p->token, TOKEN_FD) < 0 : (close(TOKEN_FD), 0))
        return false;
    if (p->control >= 0 ? dup2(p->control, CONTROL_FD) < 0 : (close(CONTROL_FD), 0))
        return false;
    /* descriptors opened here are close-on-exec already; the supervisor may have inherited others */
    (void)syscall(SYS_close_range, FIRST_FREE_FD, ~0u, 1u << 2 /* CLOSE_RANGE_CLOEXEC */);
    return true;
}

int child_detach(const struct passwd *user, pid_t parent)
{
    sigset_t all;

    /* The supervisor sends a stop as soon as the process group exists. Until signals_reset the child ignores the
     * signals that the supervisor ignores, and the kernel would drop such a signal. A blocked signal stays pending
     * instead. */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    signals_reset();
    if (user && !child_become_user(user))
        return 1;
    /* after setuid, which clears the setting. If the parent died before this call, no signal comes; getppid tells
     * this */
    return prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent ? 2 : 0;
}

static _Noreturn void child_main(struct plan *p)
{
    const struct spawn_order *order = p->order;
    int failed = child_detach(p->user, p->parent);

    if (failed)
        child_fail(p, failed == 1 ? STAGE_USER : STAGE_SETUP);
    if (!descriptors_place(p))
        child_fail(p, STAGE_SETUP);
    if (order->workdir && chdir(order->workdir))
        child_fail(p, STAGE_WORKDIR);
    limits_restore_files(p->files);
    environ = p->env;
    execvp(order->argv[0], order->argv);
    child_fail(p, STAGE_EXEC);
}

/* Forks into the cgroup at once: moving a process there later takes milliseconds. Kernels without clone3, or
 * sandboxes that forbid it, get a plain fork, and the worker stays outside the cgroup. */
static pid_t fork_into_cgroup(const char *cgroup)
{
    CLEANUP(close_fd) int fd = cgroup ? cgroup_open(cgroup) : -1;
    struct clone_args args = {.exit_signal = SIGCHLD};
    long pid;

    if (fd < 0)
        return fork();
    args.flags = CLONE_INTO_CGROUP;
    args.cgroup = (uint64_t)fd;
    pid = syscall(SYS_clone3, &args, sizeof(args));
    return pid < 0 ? fork() : (pid_t)pid;
}

enum err_code descriptor_lift(int *fd, struct err *e)
{
    int higher = fcntl(*fd, F_DUPFD_CLOEXEC, 32);

    if (higher < 0) /* EINVAL: the limit of open files is below 32 */
        return err_sys(e, errno == EINVAL ? EMFILE : errno, "descriptor");
    close(*fd);
    *fd = higher;
    return ERR_OK;
}

/* Replaces the files by the terminal; its output goes to the file that stdout was. */
static enum err_code child_terminal_open(struct plan *p, const struct terminal_offer *offer, uid_t user,
                                         struct pseudo_terminal *t, struct err *e)
{
    if (pseudo_terminal_open(t, offer, user, &p->in, e))
        return e->code;
    t->log = p->out;
    p->out = -1;
    p->terminal = true;
    if (offer->standard_error) {
        close(p->err);
        p->err = fcntl(p->in, F_DUPFD_CLOEXEC, 32);
    }
    p->out = fcntl(p->in, F_DUPFD_CLOEXEC, 32);
    return p->out < 0 || p->err < 0 ? err_sys(e, errno, "descriptor") : descriptor_lift(&p->in, e);
}

static enum err_code child_logs_open(struct plan *p, const struct terminal_link *link,
                                     struct pseudo_terminal *t, struct err *e)
{
    bool foreground = p->order->foreground;
    uid_t user = p->user ? p->user->pw_uid : geteuid();
    gid_t group = p->user ? p->user->pw_gid : getegid();

    if (log_place_make(p->order->log_dir, user, group, &p->logs, e))
        return e->code;
    p->out = fcntl(p->logs.out, F_DUPFD_CLOEXEC, 32);
    p->err = fcntl(p->logs.err, F_DUPFD_CLOEXEC, 32);
    if (p->out < 0 || p->err < 0)
        return err_sys(e, errno, "descriptor");
    if (foreground && link->socket >= 0)
        return child_terminal_open(p, &link->offer, user, t, e);
    p->in = foreground ? fcntl(0, F_DUPFD_CLOEXEC, 32) : open("/dev/null", O_RDONLY | O_CLOEXEC);
    return p->in < 0 ? err_sys(e, errno, "/dev/null") : descriptor_lift(&p->in, e);
}

/* *mine is the end that stays in the supervisor. */
static enum err_code pipe_make(int *mine, int *childs, bool child_reads, struct err *e)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC))
        return err_sys(e, errno, "pipe");
    *mine = fds[child_reads ? 1 : 0];
    *childs = fds[child_reads ? 0 : 1];
    (void)fcntl(*mine, F_SETFL, O_NONBLOCK);
    return descriptor_lift(childs, e);
}

/* Only a command gets a control socket: it has no token for the coordinator. */
static enum err_code control_open(struct plan *p, int *mine, struct err *e)
{
    int fds[2];

    if (p->order->native)
        return ERR_OK;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
        return err_sys(e, errno, "socketpair");
    *mine = fds[0];
    p->control = fds[1];
    return descriptor_lift(&p->control, e);
}

static enum err_code token_open(struct plan *p, struct err *e)
{
    CLEANUP(close_fd) int mine = -1;
    uint8_t token[64];
    size_t size;

    if (!p->order->token)
        return ERR_OK;
    size = strlen(p->order->token) / 2;
    if (size > sizeof(token) || !hex_decode(token, size, p->order->token))
        return err_set(e, ERR_INVALID_ARGUMENT, "the worker's token is not hexadecimal");
    if (pipe_make(&mine, &p->token, true, e))
        return e->code;
    return fd_write_all(mine, token, size, e);
}

enum err_code child_account(const char *name, struct passwd **out, struct err *e)
{
    *out = NULL;
    if (!name)
        return ERR_OK;
    errno = 0;
    *out = getpwnam(name);
    /* getpwnam(3) lists these for a name that does not exist. Any other means that nobody knows: no descriptors, for
     * example, or a server that does not answer. */
    if (!*out && errno && errno != ENOENT && errno != ESRCH && errno != EBADF && errno != EPERM)
        return err_sys(e, errno, "account of user %s", name);
    if (!*out)
        return err_set(e, ERR_NOT_FOUND, "user %s does not exist", name);
    if ((*out)->pw_uid == geteuid())
        *out = NULL; /* changing to one's own account would need root */
    return ERR_OK;
}

static void environment_make(struct plan *p)
{
    char text[64];

    p->env = p->order->env ? strv_dup(p->order->env) : NULL;
    snprintf(text, sizeof(text), "DDP_REPORT_FD=%d", REPORT_FD);
    p->env = strv_append(p->env, text);
    if (p->control >= 0) {
        snprintf(text, sizeof(text), "DDP_CONTROL_FD=%d", CONTROL_FD);
        p->env = strv_append(p->env, text);
    }
    if (!p->order->token)
        return;
    snprintf(text, sizeof(text), "DDP_TOKEN_FD=%d", TOKEN_FD);
    p->env = strv_append(p->env, text);
}

/* True: a spare runs the order, with the same descriptors as a child of child_main. */
static bool child_take_spare(const struct plan *p, struct spares *spares, const char *cgroup, pid_t *pid)
{
    const int fds[] = {p->in, p->out, p->err, p->report, p->control, p->failure};
    static const int numbers[] = {0, 1, 2, REPORT_FD, CONTROL_FD};
    enum err_code code;
    struct err e;

    if (p->token >= 0 || p->control < 0) /* a native worker, which is not a Python program */
        return false;
    code = spares_take(spares, p->order, cgroup, p->env, p->terminal, fds, numbers, ARRAY_LEN(fds), pid, &e);
    if (code && code != ERR_NOT_FOUND)
        log_warn("spare_not_used", "why=%s", LOG_Q(e.msg));
    return !code;
}

static void child_terminal_drop(struct pseudo_terminal *t)
{
    close_fd(&t->master);
    close_fd(&t->log);
}

enum err_code child_fork(const struct spawn_order *order, const char *cgroup, rlim_t files,
                         const struct terminal_link *link, struct spares *spares, struct child *out,
                         struct err *e)
{
    CLEANUP(child_terminal_drop) struct pseudo_terminal terminal = {.master = -1, .log = -1};
    CLEANUP(child_plan_release)
    struct plan p = {.order = order,
                     .files = files,
                     .parent = getpid(),
                     .in = -1,
                     .logs = LOG_FILES_NONE,
                     .out = -1,
                     .err = -1,
                     .report = -1,
                     .token = -1,
                     .control = -1,
                     .failure = -1};
    CLEANUP(close_fd) int report = -1;
    CLEANUP(close_fd) int control = -1;
    CLEANUP(close_fd) int exec_fd = -1;
    bool warm;
    pid_t pid;

    /* before the fork: a failure here can still be reported with a whole message */
    if (child_account(order->user, &p.user, e) || child_logs_open(&p, link, &terminal, e) ||
        token_open(&p, e) || control_open(&p, &control, e))
        return e->code;
    if (pipe_make(&report, &p.report, false, e) || pipe_make(&exec_fd, &p.failure, false, e))
        return e->code;
    environment_make(&p);
    warm = spares && child_take_spare(&p, spares, cgroup, &pid);
    if (!warm)
        pid = fork_into_cgroup(cgroup);
    if (pid < 0)
        return err_sys(e, errno, "fork");
    if (!pid)
        child_main(&p);
    *out = (struct child){pid, report, control, exec_fd, terminal, p.logs, warm};
    p.logs = LOG_FILES_NONE;
    report = control = exec_fd = terminal.master = terminal.log = -1;
    return ERR_OK;
}

enum err_code child_fork_idle(const struct spawn_order *order, const char *cgroup, rlim_t files, int socket,
                              pid_t *pid, struct err *e)
{
    CLEANUP(close_fd) int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct plan p = {.order = order,
                     .files = files,
                     .parent = getpid(),
                     .env = order->env,
                     .report = socket,
                     .failure = -1};

    if (null < 0)
        return err_sys(e, errno, "/dev/null");
    if (child_account(order->user, &p.user, e) || descriptor_lift(&null, e))
        return e->code;
    /* Occupies all numbers of a rank's descriptors, so that files that a module opens on import get higher numbers. */
    p.in = p.out = p.err = p.token = p.control = null;
    *pid = fork_into_cgroup(cgroup);
    if (*pid < 0)
        return err_sys(e, errno, "fork");
    if (!*pid)
        child_main(&p);
    return ERR_OK;
}

bool child_node_failed(const struct child_failure *why)
{
    switch (why->errnum) {
    case ENOMEM:
    case ENFILE:
    case EMFILE:
    case EAGAIN:
    case ENOSPC:
    case EDQUOT:
        return true;
    case EIO: /* a disk, or the connection to a file server; a path that does not exist is the job's own error */
    case ESTALE:
    case ENOTCONN:
    case ETIMEDOUT:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case EREMOTEIO:
    case ENODEV:
    case ENXIO:
        return true;
    default:
        return false;
    }
}

enum err_code child_explain(const struct child_failure *why, const struct spawn_order *order,
                            const char *node, struct err *e)
{
    const char *command = order->argv[0];

    switch (why->stage) {
    case STAGE_USER:
        return err_sys(e, why->errnum, "cannot become user %s on %s", order->user ? order->user : "?", node);
    case STAGE_WORKDIR:
        if (why->errnum == ENOENT)
            return err_set(e, ERR_NOT_FOUND, "working directory %s does not exist on %s", order->workdir,
                           node);
        return err_sys(e, why->errnum, "working directory %s on %s", order->workdir, node);
    case STAGE_EXEC:
        /* a command without a slash was searched in PATH: the message says so */
        if (why->errnum == ENOENT && !strchr(command, '/'))
            return err_set(e, ERR_NOT_FOUND, "%s: not found in PATH on %s", command, node);
        if (why->errnum == EACCES && !strchr(command, '/'))
            return err_set(e, ERR_NOT_FOUND,
                           "%s: not found in PATH on %s, where some directories may not be read", command,
                           node);
        if (why->errnum == ENOENT)
            return err_set(e, ERR_NOT_FOUND, "%s (or its interpreter) does not exist on %s", command, node);
        return err_sys(e, why->errnum, "%s on %s", command, node);
    default:
        return err_sys(e, why->errnum, "setting up %s on %s", command, node);
    }
}
