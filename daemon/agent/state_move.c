#include "daemon/agent/state_move.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/paths.h"

/* The coordinator's account may have owned `from` for a while, and may still put any file there. So an entry
 * is checked after the move, in a directory that only this agent can change; a bad one is moved back. */
static enum err_code moved_check(const char *from, const char *old, const char *new, mode_t kind,
                                 unsigned way_back, struct err *e)
{
    struct stat st;

    if (lstat(new, &st))
        return err_sys(e, errno, "%s", new);
    if (st.st_uid == geteuid() && (st.st_mode & S_IFMT) == kind)
        return ERR_OK;
    if (renameat2(AT_FDCWD, new, AT_FDCWD, old, way_back))
        return err_sys(e, errno, "move %s back to %s", new, old);
    return err_set(
        e, ERR_FAILED_PRECONDITION,
        "%s belongs to uid %u, so this agent does not take over its earlier state from there. If only ddp wrote there, run "
        "`cd %s && chown -R -h %u instance run wish gpus.json`; otherwise remove %s",
        old, (unsigned)st.st_uid, from, (unsigned)geteuid(), old);
}

static enum err_code state_entry_move(const char *from, const char *to, const char *name, struct err *e)
{
    CLEANUP(free_text) char *old = paths_join(from, name);
    CLEANUP(free_text) char *new = paths_join(to, name);

    if (rename(old, new))
        return errno == ENOENT ? ERR_OK : err_sys(e, errno, "move %s to %s", old, new);
    return moved_check(from, old, new, S_IFREG, 0, e);
}

/* Moves the directory and leaves a link in its place. Both change places in one step where the file system
 * can do so: a running supervisor must find its directory at every moment. */
static enum err_code run_dir_move(const char *from, const char *to, struct err *e)
{
    CLEANUP(free_text) char *old = paths_join(from, "run");
    CLEANUP(free_text) char *new = paths_join(to, "run");
    struct stat st;

    if (lstat(old, &st) || !S_ISDIR(st.st_mode))
        return ERR_OK;
    if (symlink(new, new) && errno != EEXIST)
        return err_sys(e, errno, "make link %s", new);
    if (renameat2(AT_FDCWD, old, AT_FDCWD, new, RENAME_EXCHANGE) == 0) {
        if (!moved_check(from, old, new, S_IFDIR, RENAME_EXCHANGE, e))
            return ERR_OK;
        (void)unlink(new);
        return e->code;
    }
    if (unlink(new))
        return err_sys(e, errno, "remove %s", new);
    if (rename(old, new)) /* the fallback for file systems that cannot exchange two entries */
        return errno == EXDEV
                   ? err_set(e, ERR_UNIMPLEMENTED, "%s and %s are on different file systems", old, new)
                   : err_sys(e, errno, "move %s to %s", old, new);
    if (moved_check(from, old, new, S_IFDIR, 0, e))
        return e->code;
    return symlink(new, old) ? err_sys(e, errno, "make link %s", old) : ERR_OK;
}

static enum err_code state_entries_move(const char *from, const char *to, struct err *e)
{
    CLEANUP(free_text) char *lock = paths_join(from, "agent.lock");
    CLEANUP(close_fd) int lock_fd = -1;

    if (file_lock(lock, &lock_fd, e))
        return err_wrap(e, "an older ddp-agent still runs");
    if (run_dir_move(from, to, e) || state_entry_move(from, to, "wish", e) ||
        state_entry_move(from, to, "gpus.json", e) ||
        state_entry_move(from, to, "instance", e)) /* last: its presence says that the move is complete */
        return e->code;
    log_info("state_moved", "from=%s to=%s", LOG_Q(from), LOG_Q(to));
    return ERR_OK;
}

enum err_code state_move(const char *from, const char *to, char **out, struct err *e)
{
    CLEANUP(free_text) char *old = paths_join(from, "instance");
    CLEANUP(free_text) char *new = paths_join(to, "instance");
    enum err_code code = ERR_OK;
    struct stat st;

    if (file_mkdirs(to, 0700, e))
        return e->code;
    if (!file_exists(new) && file_exists(old))
        code = state_entries_move(from, to, e);
    /* UNIMPLEMENTED: the directories are on different file systems, so the old one stays in use. */
    if (code && code != ERR_UNIMPLEMENTED)
        return code;
    if (code && (stat(from, &st) || st.st_uid != geteuid()))
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "%s: belongs to another user, and this agent's former state in it cannot be moved to %s, "
            "which is on another file system: run ddp-agent --rejoin --state %s when no job runs here",
            from, to, to);
    *out = xstrdup(code ? from : to);
    return ERR_OK;
}
