#include "base/crypto/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

static bool group_is_ours(gid_t group)
{
    int count = getgroups(0, NULL);
    CLEANUP(free_text) char *room = xcalloc((size_t)(count > 0 ? count : 0) + 1, sizeof(gid_t));
    gid_t *groups = (gid_t *)(void *)room;

    if (geteuid() == 0 || group == getegid())
        return true;
    count = count > 0 ? getgroups(count, groups) : 0;
    for (int i = 0; i < count; i++)
        if (groups[i] == group)
            return true;
    return false;
}

/* Says how to make a file readable, such as a key of root for a daemon that no longer runs as root. If the
 * directory is closed to this program, the file's mode is unknown, and the message has no command. */
static enum err_code open_refused(const char *path, int errnum, struct err *e)
{
    const struct passwd *user = getpwuid(geteuid());
    const struct group *group = getgrgid(getegid());
    struct stat st;

    if (errnum != EACCES || !user || !group || stat(path, &st) != 0)
        return err_sys(e, errnum, "open %s", path);
    if (st.st_uid == geteuid())
        return err_set(e, ERR_PERMISSION_DENIED, "%s: its owner may not read it: run `chmod 600 %s`", path,
                       path);
    return err_set(e, ERR_PERMISSION_DENIED, "%s: %s may not read it: run `chgrp %s %s && chmod 640 %s`",
                   path, user->pw_name, group->gr_name, path, path);
}

static enum err_code mode_check(const char *path, const struct stat *st, struct err *e)
{
    if (!S_ISREG(st->st_mode))
        return ERR_OK;
    if (st->st_mode & 0027)
        return err_set(e, ERR_PERMISSION_DENIED, "%s: others may read it: run `chmod 600 %s`", path, path);
    if ((st->st_mode & 0050) && !group_is_ours(st->st_gid))
        return err_set(e, ERR_PERMISSION_DENIED,
                       "%s: a group that this program is not in may read it: run `chmod 600 %s`", path, path);
    return ERR_OK;
}

/* owned: the file must belong to the user of this program. */
static enum err_code secret_read_checked(const char *path, size_t limit, bool owned, struct buf *out,
                                         struct err *e)
{
    CLEANUP(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return open_refused(path, errno, e);
    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "%s", path);
    if (owned && st.st_uid != geteuid())
        return err_set(e, ERR_PERMISSION_DENIED, "%s: belongs to uid %u, not to this user: remove the file",
                       path, (unsigned)st.st_uid);
    if (mode_check(path, &st, e))
        return e->code;
    return fd_read_all(fd, path, limit, out, e);
}

enum err_code secret_read(const char *path, size_t limit, struct buf *out, struct err *e)
{
    return secret_read_checked(path, limit, false, out, e);
}

enum err_code secret_read_own(const char *path, size_t limit, struct buf *out, struct err *e)
{
    return secret_read_checked(path, limit, true, out, e);
}
