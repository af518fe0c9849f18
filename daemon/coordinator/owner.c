#include "daemon/coordinator/owner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define DEPTH_MAX 4 /* backups are one level down */

static bool owner_find(const char *state, struct stat *st)
{
    return geteuid() == 0 && stat(state, st) == 0 && st->st_uid != 0;
}

bool owner_is_other(const char *state)
{
    struct stat st;

    return owner_find(state, &st);
}

enum err_code owner_assign(const char *state, struct err *e)
{
    const struct passwd *account = geteuid() == 0 ? getpwnam(OWNER_ACCOUNT) : NULL;

    if (account && lchown(state, account->pw_uid, account->pw_gid))
        return err_sys(e, errno, "chown %s", state);
    return ERR_OK;
}

/* Security: root walks a directory that another account can change meanwhile. So everything is done through
 * descriptors that do not follow links, only files of root are changed, and a file with several hard links is
 * left alone, since one of them may be a file of root elsewhere. */
static enum err_code entry_give(int dir, const char *name, const struct stat *owner, int depth,
                                struct err *e);

static enum err_code directory_give(int fd, const struct stat *owner, int depth, struct err *e)
{
    DIR *d = fdopendir(fd);
    const struct dirent *entry;
    enum err_code code = ERR_OK;

    if (!d) {
        int saved = errno;

        close(fd);
        return err_sys(e, saved, "read the state directory");
    }
    while (!code && (entry = readdir(d)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            code = entry_give(dirfd(d), entry->d_name, owner, depth, e);
    closedir(d);
    return code;
}

static enum err_code entry_give(int dir, const char *name, const struct stat *owner, int depth, struct err *e)
{
    CLEANUP(close_fd) int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0) /* a symbolic link, a socket, or gone: root makes none of these there */
        return ERR_OK;
    if (fstat(fd, &st))
        return err_sys(e, errno, "%s", name);
    if (S_ISDIR(st.st_mode) && st.st_dev == owner->st_dev && depth < DEPTH_MAX) {
        int inner = fcntl(fd, F_DUPFD_CLOEXEC, 0);

        if (inner >= 0 && directory_give(inner, owner, depth + 1, e))
            return e->code;
    }
    if (st.st_uid != 0 || !(S_ISDIR(st.st_mode) || (S_ISREG(st.st_mode) && st.st_nlink == 1)))
        return ERR_OK;
    return fchown(fd, owner->st_uid, owner->st_gid) ? err_sys(e, errno, "chown %s", name) : ERR_OK;
}

enum err_code owner_hand_over(const char *state, struct err *e)
{
    struct stat owner;
    int fd;

    if (!owner_find(state, &owner))
        return ERR_OK;
    fd = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "open %s", state) : directory_give(fd, &owner, 0, e);
}

enum err_code owner_become(const char *state, struct err *e)
{
    const struct passwd *account;
    struct stat st;

    if (!owner_find(state, &st))
        return ERR_OK;
    account = getpwuid(st.st_uid);
    if (!account)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s belongs to uid %u, which has no account on this machine", state,
                       (unsigned)st.st_uid);
    if (initgroups(account->pw_name, account->pw_gid) || setgid(account->pw_gid) || setuid(account->pw_uid))
        return err_sys(e, errno, "switch to the account %s, which owns %s", account->pw_name, state);
    return ERR_OK;
}
