#include "daemon/agent/ward_launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/control/socket.h"

#define CONTROL_FD 3

/* A process of its own in every respect: session, signals, descriptors. Its messages go to a file, since the
 * agent's stderr may be a pipe that ends with the agent. */
static int set_up(posix_spawn_file_actions_t *files, posix_spawnattr_t *attr, const char *log, int control)
{
    sigset_t none, all;
    int rc = posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0);

    sigemptyset(&none);
    sigfillset(&all);
    rc = rc ? rc : posix_spawn_file_actions_addopen(files, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(files, 1, 2);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(files, control, CONTROL_FD);
    rc = rc ? rc : posix_spawn_file_actions_addclosefrom_np(files, CONTROL_FD + 1);
    rc = rc ? rc : posix_spawnattr_setsigmask(attr, &none);
    rc = rc ? rc : posix_spawnattr_setsigdefault(attr, &all);
    return rc ? rc
              : posix_spawnattr_setflags(attr,
                                         POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static enum err_code run(const char *program, const struct wards_options *o, const char *dir, int64_t job,
                         int control, pid_t *pid, struct err *e)
{
    CLEANUP(free_text) char *log_dir = xasprintf("%s/%" PRId64, o->log_dir, job);
    CLEANUP(free_text) char *log = xasprintf("%s/supervisor.%s.log", log_dir, o->node);
    CLEANUP(free_text) char *number = xasprintf("%" PRId64, job);
    CLEANUP(free_text) char *fd = xasprintf("%d", CONTROL_FD);
    char *argv[] = {(char *)program,
                    (char *)"--dir",
                    (char *)dir,
                    (char *)"--job",
                    number,
                    (char *)"--node",
                    (char *)o->node,
                    (char *)"--control-fd",
                    fd,
                    o->attached ? (char *)"--attached" : NULL,
                    NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    int rc;

    if (file_mkdirs(dir, 0700, e) || file_mkdirs(log_dir, 0755, e))
        return e->code;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    rc = set_up(&files, &attr, log, control);
    if (!rc)
        rc = posix_spawn(pid, program, &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    return rc ? err_sys(e, rc, "%s", program) : ERR_OK;
}

enum err_code ward_launch(const struct wards_options *options, int64_t job, const char *dir, int *fd,
                          pid_t *pid, struct err *e)
{
    CLEANUP(free_text) char *program = NULL;
    CLEANUP(close_fd) int ours = -1;
    CLEANUP(close_fd) int theirs = -1;
    int pair[2];

    if (paths_program("ddp-supervisor", &program, e) || control_pair(pair, e))
        return e->code;
    ours = pair[0];
    theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, CONTROL_FD + 1); /* dup2 onto itself would keep close-on-exec */
    close(pair[1]);
    if (theirs < 0)
        return err_sys(e, errno, "control socket");
    if (run(program, options, dir, job, theirs, pid, e))
        return e->code;
    *fd = ours;
    ours = -1;
    return ERR_OK;
}
