#include "client/run/launch/remote_children.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "client/cmd/output.h"
#include "client/interrupts.h"
#include "client/run/hosts/endpoint.h"
#include "client/run/launch/launch_message.h"
#include "client/text/shell_quote.h"

/* One child for each host: a ddpctl on this host, an ssh or a pbsdsh for another host.
 *
 * Happy path: every child gets the environment through its stdin, which then stays open as its lifeline. They
 * meet, run the job and exit with its exit code; that of the first is this process's too. ^C goes to the
 * first, which hosts the run and stops the job for all: as a signal on this host, as a byte on the lifeline to
 * another (launch_message.h). A lifeline stays open meanwhile, since its end counts as one more signal.
 *
 * Failures:
 * - A child fails while others go on: it could not be started, or its host is lost. The others get some
 *   time to end by themselves (NOT_STARTED_MS, LOST_MS). Then their lifelines are closed, and after END_MS
 *   they are killed. The same happens when the first has ended and others have not.
 * - This process dies: the lifelines close.
 *
 * pbsdsh does not pass on stdin. There a file that only the user can read has the environment, and the child
 * has no lifeline: it ends with the run, when the hosting ddpctl ends. So with pbsdsh the first host must be
 * this one. */

#define TURN_MS 100
#define NOT_STARTED_MS 3000 /* how long the others may go on after a child that could not be started, */
#define LOST_MS 30000       /* and after one that failed in another way */
#define END_MS 60000        /* from closing the lifelines to SIGKILL */

struct child {
    pid_t pid;
    int pidfd, lifeline; /* -1: none */
    bool local, ended;
    int code;
};

struct children {
    const struct remote_launch *plan;
    struct child *list;
    rlim_t files;            /* the user's soft limit of open files, for the children */
    char *file;              /* pbsdsh: the file with the environment */
    int stops;               /* signals that were passed on */
    int64_t end_ms, kill_ms; /* when the rest is told to end, and killed; 0: not decided */
    bool broken;             /* the run was ended because a host failed: the exit code is 125 */
};

/* ---- starting */

/* A shell command that runs the same program with the same arguments in the same directory. */
static char *child_shell_line(char *const *command)
{
    CLEANUP(free_text) char *here = getcwd(NULL, 0);
    struct buf line = {0};
    buf_puts(&line, "cd ");
    shell_quote(&line, here ? here : "/");
    buf_puts(&line, " && exec");
    for (; *command; command++) {
        buf_putc(&line, ' ');
        shell_quote(&line, *command);
    }
    return buf_steal(&line);
}

static char **child_remote_arguments(const struct remote_launch *p, size_t rank, char *const *command)
{
    CLEANUP(free_text) char *line = child_shell_line(command);
    char **argv = NULL;
    if (p->launcher == LAUNCHER_SSH) {
        const char *const words[] = {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", p->hosts[rank]};
        for (size_t i = 0; i < ARRAY_LEN(words); i++)
            argv = strv_append(argv, words[i]);
        return strv_append(argv, line);
    }
    CLEANUP(free_text) char *slot = xasprintf("%lld", (long long)p->slots[rank]);
    const char *const words[] = {"pbsdsh", "-n", slot, "--", "/bin/sh", "-c", line};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        argv = strv_append(argv, words[i]);
    return argv;
}

static int child_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* The child gets a process group of its own, so that ^C of the terminal reaches only this process. */
static enum err_code remote_child_spawn(const struct children *all, struct child *c, char *const *argv,
                                        int input, struct err *e)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    limits_restore_files(all->files); /* what it starts passes this limit on to the workers */
    int rc = posix_spawnp(&c->pid, argv[0], &actions, &attributes, argv, environ);
    (void)limits_raise_files();
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (rc != 0)
        return err_sys(e, rc, "%s", argv[0]);
    c->pidfd = child_pidfd(c->pid);
    return ERR_OK;
}

/* An error is ignored here: the child has ended, and its exit status will show why. */
static void child_send_environment(const struct children *all, int fd)
{
    struct err ignored;
    size_t size;
    CLEANUP(free_text) char *packed = launch_message_pack(all->plan->secrets, &size);
    if (fd_write_all(fd, packed, size, &ignored) != ERR_OK)
        return;
}

static enum err_code remote_child_start(struct children *all, size_t rank, struct err *e)
{
    const struct remote_launch *p = all->plan;
    struct child *c = &all->list[rank];
    struct endpoint where = {0};
    int ends[2];
    struct err unknown;
    c->local = endpoint_find(&where, p->hosts[rank], p->port, &unknown) == ERR_OK && where.own;
    endpoint_release(&where);
    /* This host needs no ssh to itself, which may not even be set up. A name that cannot be resolved is
     * remote: ssh may have an alias for it. */
    bool by_file = !c->local && p->launcher == LAUNCHER_PBSDSH;
    if (by_file && rank == 0)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "pbsdsh passes on neither ^C nor the end of this process: start the run on %s, the first "
            "host, or use --launcher ssh",
            p->hosts[0]);
    char **command = remote_launch_command(p, (int64_t)rank, by_file ? all->file : "-");
    char **argv = c->local ? strv_dup(command) : child_remote_arguments(p, rank, command);
    enum err_code code = pipe2(ends, O_CLOEXEC) == 0 ? ERR_OK : err_sys(e, errno, "pipe");
    if (code == ERR_OK) {
        c->lifeline = ends[1];
        code = remote_child_spawn(all, c, argv, ends[0], e);
        close(ends[0]);
    }
    if (code == ERR_OK && !by_file)
        child_send_environment(all, c->lifeline);
    if (code == ERR_OK && fcntl(c->lifeline, F_SETFL, O_NONBLOCK) != 0) /* for child_pass_signal */
        code = err_sys(e, errno, "pipe");
    strv_free(command);
    strv_free(argv);
    return code;
}

/* ---- watching */

static void child_report_end(const struct children *all, size_t rank, const char *what, int64_t number)
{
    CLEANUP(buf_release) struct buf line = {0};
    buf_printf(&line, "ddpctl: %s: %s ended with %lld, %s\n", all->plan->hosts[rank],
               all->list[rank].local                 ? "ddpctl"
               : all->plan->launcher == LAUNCHER_SSH ? "ssh"
                                                     : "pbsdsh",
               (long long)number, what);
    stderr_put(&line);
}

/* ssh exits with 255 if it fails itself, a shell with 126 or 127 if it cannot execute the program. No job
 * exits with these codes before ddpctl has started there. */
static bool child_never_started(const struct child *c)
{
    return !c->local && (c->code == 255 || c->code == 126 || c->code == 127);
}

static void child_ended(struct children *all, size_t rank, int status)
{
    struct child *c = &all->list[rank];
    int64_t now = clock_boot_ms();
    c->ended = true;
    c->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    /* The run goes on without this host if the run is elastic or the host succeeded. It does not go on
     * without the first host, which runs the coordinator. */
    if (all->end_ms || (rank > 0 && (c->code == 0 || all->plan->elastic)))
        return;
    all->end_ms = now + (child_never_started(c) ? NOT_STARTED_MS : LOST_MS);
}

static size_t children_reap(struct children *all)
{
    size_t left = 0;
    for (size_t i = 0; i < (size_t)all->plan->count; i++) {
        struct child *c = &all->list[i];
        int status;
        if (!c->ended && c->pid > 0 && waitpid(c->pid, &status, WNOHANG) == c->pid)
            child_ended(all, i, status);
        left += !c->ended && c->pid > 0;
    }
    return left;
}

static void child_close_lifeline(struct child *c)
{
    close_fd(&c->lifeline);
    c->lifeline = -1;
}

static void child_pass_signal(struct child *c, int number)
{
    const unsigned char byte = (unsigned char)number;
    if (c->ended || c->pid <= 0)
        return;
    if (c->local)
        kill(c->pid, number);
    else if (c->lifeline >= 0 && write(c->lifeline, &byte, 1) != 1)
        child_close_lifeline(c); /* the pipe is still full of the environment: its end stops the host, too */
}

static void children_end_all(struct children *all, int kill_signal)
{
    for (size_t i = 0; i < (size_t)all->plan->count; i++) {
        struct child *c = &all->list[i];
        child_close_lifeline(c);
        if (!c->ended && c->pid > 0 && (kill_signal == SIGKILL || c->local))
            kill(c->pid, kill_signal);
    }
}

/* Ends the rest of the children when their time is over. */
static void children_give_up(struct children *all)
{
    int64_t now = clock_boot_ms();
    if (!all->end_ms || now < all->end_ms)
        return;
    if (!all->kill_ms) {
        all->kill_ms = now + END_MS;
        all->broken = !all->list[0].ended;
        for (size_t i = 0; i < (size_t)all->plan->count; i++)
            if (all->list[i].ended && all->list[i].code)
                child_report_end(all, i, "ending the others", all->list[i].code);
        children_end_all(all, SIGTERM);
    } else if (now >= all->kill_ms) {
        children_end_all(all, SIGKILL);
    }
}

/* The first two signals go to the first child, which hosts the run: it stops the job for all, then kills it. If the
 * first child has ended, they go to the others. The third signal ends all of them at once. */
static void children_obey(struct children *all)
{
    const bool hosted = !all->list[0].ended;
    if (all->stops >= interrupts_count())
        return;
    all->stops++;
    if (all->stops > 2) {
        children_end_all(all, SIGKILL);
        return;
    }
    for (size_t i = 0; i < (hosted ? 1 : (size_t)all->plan->count); i++)
        child_pass_signal(&all->list[i], interrupt_signal());
}

static void children_wait(struct children *all)
{
    struct pollfd *fds = xcalloc((size_t)all->plan->count, sizeof(*fds));
    while (children_reap(all)) {
        for (size_t i = 0; i < (size_t)all->plan->count; i++)
            fds[i] = (struct pollfd){.fd = all->list[i].ended ? -1 : all->list[i].pidfd, .events = POLLIN};
        poll(fds, (nfds_t)all->plan->count, TURN_MS);
        children_obey(all);
        children_give_up(all);
    }
    free(fds);
}

/* True if the first host was never reached. Its code may also be that of the job, which every child exits with. */
static bool children_lack_the_first(const struct children *all)
{
    for (size_t i = 1; child_never_started(&all->list[0]) && i < (size_t)all->plan->count; i++)
        if (all->list[i].code != all->list[0].code)
            return true;
    return false;
}

/* Every child exits with the job's exit code. The first child's is preferred: it runs here, and no ssh has
 * changed its code. */
static int children_exit_code(const struct children *all)
{
    if (interrupts_count())
        return 128 + interrupt_signal();
    if (all->broken || children_lack_the_first(all))
        return EXIT_DDP;
    if (all->list[0].code)
        return all->list[0].code;
    for (size_t i = 0; i < (size_t)all->plan->count; i++)
        if (all->list[i].code && !all->plan->elastic)
            return all->list[i].code;
    return EXIT_DONE;
}

/* ---- */

/* pbsdsh: writes the environment to a file in the user's home, which the nodes of a PBS cluster share. */
static enum err_code children_write_file(struct children *all, struct err *e)
{
    const char *home = getenv("HOME");
    size_t size;
    CLEANUP(free_text) char *packed = launch_message_pack(all->plan->secrets, &size);
    all->file = xasprintf("%s/.ddp-launch-XXXXXX", home && *home == '/' ? home : "/tmp");
    CLEANUP(close_fd) int fd = mkostemp(all->file, O_CLOEXEC); /* 0600 */
    if (fd < 0)
        return err_sys(e, errno, "%s", all->file);
    return fd_write_all(fd, packed, size, e);
}

static void children_release(struct children *all)
{
    for (size_t i = 0; i < (size_t)all->plan->count; i++) {
        close_fd(&all->list[i].lifeline);
        close_fd(&all->list[i].pidfd);
    }
    if (all->file)
        unlink(all->file);
    free(all->file);
    free(all->list);
}

int remote_children_run(const struct remote_launch *p)
{
    struct children all = {.plan = p, .list = xcalloc((size_t)p->count, sizeof(*all.list))};
    struct err e;
    enum err_code code = ERR_OK;
    all.files = limits_raise_files(); /* each child takes two descriptors */
    for (size_t i = 0; i < (size_t)p->count; i++)
        all.list[i].lifeline = all.list[i].pidfd = -1;
    interrupts_catch_these(p->signals);
    signal(SIGPIPE, SIG_IGN);
    if (p->launcher == LAUNCHER_PBSDSH)
        code = children_write_file(&all, &e);
    for (size_t i = 0; i < (size_t)p->count && code == ERR_OK; i++)
        code = remote_child_start(&all, i, &e);
    if (code != ERR_OK) {
        error_print(&e);
        all.broken = true;
        children_end_all(&all, SIGTERM);
    }
    children_wait(&all);
    int status = children_exit_code(&all);
    children_release(&all);
    return status;
}
