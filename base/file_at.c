#include "base/file_at.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)

/* mode 0: makes no directories. */
static int step_into(int at, const char *name, mode_t mode)
{
    int fd = openat(at, name, DIR_FLAGS);

    if (fd >= 0 || errno != ENOENT || !mode)
        return fd;
    if (mkdirat(at, name, mode) && errno != EEXIST)
        return -1;
    return openat(at, name, DIR_FLAGS);
}

static enum err_code walk_down(int at, const char *path, mode_t mode, bool own, int *out, struct err *e)
{
    CLEANUP(free_text) char *copy = xstrdup(path);
    CLEANUP(close_fd) int fd = fcntl(at, F_DUPFD_CLOEXEC, 0);
    char *rest = copy, *name;

    if (fd < 0)
        return err_sys(e, errno, "%s", path);
    while ((name = strsep(&rest, "/"))) {
        int below;
        struct stat st;

        if (!*name) /* a leading, trailing or double slash */
            continue;
        /* ".." could leave the trusted directory. */
        if (!strcmp(name, "..") || !strcmp(name, "."))
            return err_set(e, ERR_INVALID_ARGUMENT, "%s: invalid component '%s' in the path", path, name);
        below = step_into(fd, name, mode);
        if (below < 0)
            return err_sys(e, errno, "%s", name);
        close(fd);
        fd = below;
        if (!own || !rest) /* the last directory may belong to another user */
            continue;
        if (fstat(fd, &st))
            return err_sys(e, errno, "%s", path);
        if (st.st_uid != geteuid())
            return err_set(e, ERR_PERMISSION_DENIED,
                           "%s: %s belongs to uid %u, who could replace its entries", path, name,
                           (unsigned)st.st_uid);
    }
    *out = fd;
    fd = -1;
    return ERR_OK;
}

enum err_code file_at_open_dir(int at, const char *path, int *fd, struct err *e)
{
    return walk_down(at, path, 0, false, fd, e);
}

enum err_code file_at_make_dirs(int at, const char *path, mode_t mode, bool own, int *fd, struct err *e)
{
    return walk_down(at, path, mode, own, fd, e);
}

enum err_code file_at_open_plain(int dir, const char *name, int flags, int *out, struct stat *st,
                                 struct err *e)
{
    CLEANUP(close_fd) int fd = openat(dir, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat own;

    if (fd < 0)
        return errno == ELOOP ? err_set(e, ERR_INVALID_ARGUMENT, "%s: is a symbolic link", name)
                              : err_sys(e, errno, "%s", name);
    if (fstat(fd, st) || fstat(dir, &own))
        return err_sys(e, errno, "%s", name);
    if (!S_ISREG(st->st_mode))
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: is not a plain file", name);
    if (st->st_uid != own.st_uid)
        return err_set(e, ERR_PERMISSION_DENIED, "%s: belongs to uid %u, but its directory to uid %u", name,
                       (unsigned)st->st_uid, (unsigned)own.st_uid);
    *out = fd;
    fd = -1;
    return ERR_OK;
}

enum err_code file_at_open_append(int dir, const char *name, mode_t mode, uid_t user, gid_t group, int *out,
                                  struct err *e)
{
    const int flags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    CLEANUP(close_fd) int fd = openat(dir, name, flags | O_CREAT | O_EXCL, mode);
    bool made = fd >= 0;
    struct stat st, own;

    if (fd < 0 && errno == EEXIST)
        fd = openat(dir, name, flags);
    if (fd < 0)
        return err_sys(e, errno, "%s", name);
    if (fstat(fd, &st) || fstat(dir, &own))
        return err_sys(e, errno, "%s", name);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: is not a plain file", name);
    /* our file in another user's directory: that user may have moved one of our files there */
    if (!made &&
        (st.st_nlink > 1 || (st.st_uid != user && (st.st_uid != geteuid() || own.st_uid != geteuid()))))
        return err_set(e, ERR_PERMISSION_DENIED, "%s: belongs to another user", name);
    if ((st.st_uid != user || st.st_gid != group) && user != geteuid() && fchown(fd, user, group))
        return err_sys(e, errno, "%s", name);
    if (made && fchmod(fd, mode))
        return err_sys(e, errno, "%s", name);
    /* O_NONBLOCK was for FIFOs only; the worker's writes must block as usual. */
    if (fcntl(fd, F_SETFL, O_APPEND))
        return err_sys(e, errno, "%s", name);
    *out = fd;
    fd = -1;
    return ERR_OK;
}
