#include "daemon/agent/supervisor_launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_at.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/supervisor/protocol/log_place.h"
#include "daemon/supervisor/protocol/socket.h"

enum { CONTROL_FD = 3, TERMINAL_FD = 4 };

/* The supervisor gets a session, signal handling and descriptors of its own, since it may outlive the agent.
 * Its log goes to a file: the agent's stderr may be a pipe that closes when the agent ends. Only under `ddpctl run` is
 * the agent's stdin meant for a worker. */
static int supervisor_attributes_set(posix_spawn_file_actions_t *files, posix_spawnattr_t *attr, int log,
                                     int control, const struct supervisors_options *o)
{
    sigset_t none, all;
    int first_closed = o->terminal >= 0 ? TERMINAL_FD + 1 : CONTROL_FD + 1;
    int rc = o->attached ? 0 : posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0);

    sigemptyset(&none);
    sigfillset(&all);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(files, log, 1);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(files, 1, 2);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(files, control, CONTROL_FD);
    if (o->terminal >= 0)
        rc = rc ? rc : posix_spawn_file_actions_adddup2(files, o->terminal, TERMINAL_FD);
    rc = rc ? rc : posix_spawn_file_actions_addclosefrom_np(files, first_closed);
    rc = rc ? rc : posix_spawnattr_setsigmask(attr, &none);
    rc = rc ? rc : posix_spawnattr_setsigdefault(attr, &all);
    return rc ? rc
              : posix_spawnattr_setflags(attr,
                                         POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static enum err_code supervisor_log_open(const struct supervisors_options *o, const char *job, int *log,
                                         struct err *e)
{
    CLEANUP(free_text) char *name = xasprintf("supervisor.%s.log", o->node);
    CLEANUP(close_fd) int top = -1;
    CLEANUP(close_fd) int dir = -1;

    if (file_mkdirs(o->log_dir, LOG_PLACE_DIR_MODE, e))
        return e->code;
    top = open(o->log_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return err_sys(e, errno, "%s", o->log_dir);
    if (file_at_make_dirs(top, job, LOG_PLACE_DIR_MODE, o->runtime, &dir, e) ||
        file_at_open_append(dir, name, LOG_PLACE_FILE_MODE, geteuid(), getegid(), log, e))
        return err_wrap(e, "%s/%s", o->log_dir, job);
    return ERR_OK;
}

static enum err_code supervisor_exec(const char *program, const struct supervisors_options *o,
                                     const char *dir, int64_t job, int control, pid_t *pid, struct err *e)
{
    CLEANUP(close_fd) int log = -1;
    CLEANUP(free_text) char *number = xasprintf("%" PRId64, job);
    CLEANUP(free_text) char *fd = xasprintf("%d", CONTROL_FD);
    CLEANUP(free_text) char *terminal = xasprintf("%d", TERMINAL_FD);
    CLEANUP(free_text) char *files = xasprintf("%llu", (unsigned long long)o->files);
    char *argv[] = {(char *)program,
                    (char *)"--dir",
                    (char *)dir,
                    (char *)"--job",
                    number,
                    (char *)"--node",
                    (char *)o->node,
                    (char *)"--control-fd",
                    fd,
                    (char *)"--open-files",
                    files,
                    o->attached ? (char *)"--attached" : NULL,
                    o->attached && o->terminal >= 0 ? (char *)"--terminal" : NULL,
                    terminal,
                    NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int rc;

    /* before the spawn: its errors would end in a log that nobody reads yet */
    if (file_mkdirs(dir, 0700, e) || supervisor_log_open(o, number, &log, e))
        return e->code;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    rc = supervisor_attributes_set(&actions, &attr, log, control, o);
    if (!rc)
        rc = posix_spawn(pid, program, &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    return rc ? err_sys(e, rc, "%s", program) : ERR_OK;
}

enum err_code supervisor_launch(const struct supervisors_options *options, int64_t job, const char *dir,
                                int *fd, pid_t *pid, struct err *e)
{
    CLEANUP(free_text) char *program = NULL;
    CLEANUP(close_fd) int ours = -1;
    CLEANUP(close_fd) int theirs = -1;
    int pair[2];

    if (paths_program("ddp-supervisor", &program, e) || control_pair(pair, e))
        return e->code;
    ours = pair[0];
    theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, TERMINAL_FD + 1); /* dup2 onto itself would keep close-on-exec */
    close(pair[1]);
    if (theirs < 0)
        return err_sys(e, errno, "control socket");
    if (supervisor_exec(program, options, dir, job, theirs, pid, e))
        return e->code;
    *fd = ours;
    ours = -1;
    return ERR_OK;
}
