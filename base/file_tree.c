/* Removal of a directory tree that another user may change meanwhile.
 *
 * Every entry is reached through a descriptor of its directory, and no link is followed: if a directory is
 * replaced by a link, only the link is removed. One directory is open at a time. The way back is "..", whose
 * device and inode number are compared with those of the directory above, so that a deep tree needs neither
 * more descriptors nor more stack. Other file systems are not entered.
 *
 * Root itself removes only entries of root's own directories. A directory of another user is emptied with that
 * user's rights, whatever the user moves into the tree, so the removal can delete nothing that the user could
 * not delete. A thread of its own does this, since Linux keeps the user for file access (fsuid) for each
 * thread. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
#define NO_GROUP 65534    /* group of the thread that acts as another user; an owner needs no group */
#define CHANGES_MAX 10000 /* entries that changed between two system calls, before the removal gives up */
#define OTHERS_MS 2000    /* time limit in another user's tree: the user may fill it as fast as we empty it */

struct tree_level { /* a directory above the open one */
    dev_t dev;
    ino_t ino;
    char *entry; /* the entered directory in it */
};

struct tree_removal {
    const char *path; /* for messages */
    dev_t device;
    uid_t user;   /* the user whose rights we have */
    bool lent;    /* uid is not the process's own */
    bool limited; /* ends at `until` */
    int64_t
        until; /* end of the time limit, which other users' directories always have; 0: none was found yet */
    int changes;
    struct tree_level *above;
    size_t depth, cap;
};

static void release_removal(struct tree_removal *r)
{
    while (r->depth)
        free(r->above[--r->depth].entry);
    free(r->above);
}

static enum err_code empty_as_owner(struct tree_removal *r, int fd, uid_t owner, struct err *e);

/* The entry changed between two system calls: another process works in the tree. */
static enum err_code tree_changed(struct tree_removal *r, struct err *e)
{
    if (++r->changes > CHANGES_MAX)
        return err_set(e, ERR_ABORTED, "remove %s: another process keeps changing it", r->path);
    return ERR_OK;
}

/* Opens the entry as a directory. OK with *fd -1: the entry is not a directory, or no longer one. */
static enum err_code enter_entry(struct tree_removal *r, int at, const char *name, int *fd, struct stat *st,
                                 struct err *e)
{
    *fd = openat(at, name, DIR_FLAGS);
    /* The owner may have removed the owner's permissions, which root would not need. */
    if (*fd < 0 && errno == EACCES && r->lent && !fchmodat(at, name, 0700, AT_SYMLINK_NOFOLLOW))
        *fd = openat(at, name, DIR_FLAGS);
    if (*fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return tree_changed(r, e);
    if (*fd < 0)
        return err_sys(e, errno, "remove %s: open %s", r->path, name);
    if (fstat(*fd, st)) {
        close_fd(fd);
        return err_sys(e, errno, "remove %s: %s", r->path, name);
    }
    if (st->st_dev != r->device) {
        close_fd(fd);
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "remove %s: %s is on another file system: unmount it first", r->path, name);
    }
    if (r->lent && st->st_uid == r->user && (st->st_mode & 0700) != 0700)
        (void)fchmod(*fd, 0700);
    return ERR_OK;
}

/* Returns false for a directory. errno is 0 if the entry does not exist any more. */
static bool unlink_entry(int at, const char *name)
{
    errno = 0;
    if (!unlinkat(at, name, 0) || errno == ENOENT)
        errno = 0;
    return errno != EISDIR;
}

/* Unlinks entries up to the first directory, and returns its name in *found. NULL: the directory is empty. */
static enum err_code clear_files(struct tree_removal *r, int fd, char **found, struct err *e)
{
    int copy = openat(fd, ".", DIR_FLAGS);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    enum err_code code = ERR_OK;
    const struct dirent *entry;

    *found = NULL;
    if (!d) {
        code = err_sys(e, errno, "remove %s", r->path);
        close_fd(&copy);
        return code;
    }
    while (!code && !*found && (entry = readdir(d))) {
        const char *name = entry->d_name;

        if (!strcmp(name, ".") || !strcmp(name, ".."))
            continue;
        /* The user may add files as fast as they are removed, so this ends after a time limit. */
        if (r->limited && clock_mono_ns() / 1000000 > r->until)
            code = err_set(e, ERR_DEADLINE_EXCEEDED, "remove %s: not done within the time limit", r->path);
        else if (entry->d_type == DT_DIR || !unlink_entry(fd, name))
            *found = xstrdup(name);
        else if (errno)
            code = err_sys(e, errno, "remove %s: %s", r->path, name);
    }
    closedir(d);
    return code;
}

static enum err_code removal_descend(struct tree_removal *r, int *fd, char *name, struct err *e)
{
    CLEANUP(close_fd) int below = -1;
    struct stat here, st;

    if (enter_entry(r, *fd, name, &below, &st, e))
        return e->code;
    if (below < 0) /* It is a file or a link now: the next reading of the directory unlinks it. */
        return unlinkat(*fd, name, 0) && errno == EISDIR ? tree_changed(r, e) : ERR_OK;
    if (!r->user && st.st_uid) {
        if (empty_as_owner(r, below, st.st_uid, e))
            return e->code;
        if (unlinkat(*fd, name, AT_REMOVEDIR) && errno != ENOENT)
            return err_sys(e, errno, "remove %s: %s", r->path, name);
        return ERR_OK;
    }
    if (fstat(*fd, &here))
        return err_sys(e, errno, "remove %s", r->path);
    r->above = array_grow(r->above, r->depth, &r->cap, sizeof(*r->above));
    r->above[r->depth++] = (struct tree_level){here.st_dev, here.st_ino, xstrdup(name)};
    close(*fd);
    *fd = below;
    below = -1;
    return ERR_OK;
}

static enum err_code removal_ascend(struct tree_removal *r, int *fd, struct err *e)
{
    CLEANUP(close_fd) int up = openat(*fd, "..", DIR_FLAGS);
    const struct tree_level *level = &r->above[r->depth - 1];
    CLEANUP(free_text) char *entry = level->entry;
    struct stat st;

    r->depth--;
    if (up < 0 || fstat(up, &st))
        return err_sys(e, errno, "remove %s: ..", r->path);
    if (st.st_dev != level->dev || st.st_ino != level->ino)
        return err_set(e, ERR_ABORTED, "remove %s: %s was moved meanwhile", r->path, entry);
    close(*fd);
    *fd = up;
    up = -1;
    if (!unlinkat(*fd, entry, AT_REMOVEDIR) || errno == ENOENT)
        return ERR_OK;
    if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR)
        return tree_changed(r, e); /* read again */
    return err_sys(e, errno, "remove %s: %s", r->path, entry);
}

/* Closes the descriptor. */
static enum err_code empty_directory(struct tree_removal *r, int fd, struct err *e)
{
    enum err_code code = ERR_OK;

    while (!code) {
        CLEANUP(free_text) char *name = NULL;

        code = clear_files(r, fd, &name, e);
        if (code || (!name && !r->depth))
            break;
        code = name ? removal_descend(r, &fd, name, e) : removal_ascend(r, &fd, e);
    }
    close_fd(&fd);
    return code;
}

/* ---- with another user's rights */

struct tree_errand {
    struct tree_removal removal;
    int fd;
    struct err e;
    enum err_code code;
};

/* The rights end with the thread, so they are not restored. The raw system call sets the groups of this thread
 * only; glibc's function would set those of all threads. */
static bool borrow_rights(uid_t user)
{
    if (syscall(SYS_setgroups, 0, NULL))
        return false;
    setfsgid(NO_GROUP);
    setfsuid(user);
    return (uid_t)setfsuid((uid_t)-1) == user && (gid_t)setfsgid((gid_t)-1) == NO_GROUP;
}

static void *run_errand(void *arg)
{
    struct tree_errand *errand = arg;
    struct tree_removal *r = &errand->removal;
    struct stat st;

    if (!borrow_rights(r->user)) {
        errand->code = err_set(&errand->e, ERR_PERMISSION_DENIED, "remove %s: act as uid %u", r->path,
                               (unsigned)r->user);
        close_fd(&errand->fd);
        return NULL;
    }
    if (!fstat(errand->fd, &st) && (st.st_mode & 0700) != 0700)
        (void)fchmod(errand->fd, 0700);
    errand->code = empty_directory(r, errand->fd, &errand->e);
    return NULL;
}

static enum err_code empty_as_owner(struct tree_removal *r, int fd, uid_t owner, struct err *e)
{
    struct tree_errand errand = {
        .removal = {.path = r->path, .device = r->device, .user = owner, .lent = true, .limited = true}};
    pthread_t thread;
    int rc;

    if (!r->until)
        r->until = clock_mono_ns() / 1000000 + OTHERS_MS;
    errand.removal.until = r->until;
    errand.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (errand.fd < 0)
        return err_sys(e, errno, "remove %s", r->path);
    rc = pthread_create(&thread, NULL, run_errand, &errand);
    if (rc) {
        close_fd(&errand.fd);
        return err_sys(e, rc, "remove %s: start a thread", r->path);
    }
    pthread_join(thread, NULL);
    release_removal(&errand.removal);
    if (errand.code)
        *e = errand.e;
    return errand.code;
}

static enum err_code remove_tree(struct tree_removal *r, const char *dir, struct err *e)
{
    int fd = open(dir, DIR_FLAGS);
    enum err_code code;
    struct stat st;

    /* DIR_FLAGS do not open a file or a link: remove that itself, not the target of the link. */
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP) && !unlink(dir))
        return ERR_OK;
    if (fd < 0)
        return errno == ENOENT ? ERR_OK : err_sys(e, errno, "remove %s", dir);
    if (fstat(fd, &st)) {
        code = err_sys(e, errno, "remove %s", dir);
        close(fd);
        return code;
    }
    r->device = st.st_dev;
    /* Root must not act in a directory whose owner can exchange its entries. */
    if (!r->user && st.st_uid) {
        code = empty_as_owner(r, fd, st.st_uid, e);
        close(fd);
    } else {
        code = empty_directory(r, fd, e);
    }
    if (!code && rmdir(dir) && errno != ENOENT)
        return err_sys(e, errno, "remove %s", dir);
    return code;
}

enum err_code file_remove_tree(const char *dir, struct err *e)
{
    CLEANUP(release_removal) struct tree_removal r = {.path = dir, .user = geteuid()};

    return remove_tree(&r, dir, e);
}

enum err_code file_remove_tree_within(const char *dir, int64_t limit_ms, struct err *e)
{
    CLEANUP(release_removal)
    struct tree_removal r = {
        .path = dir, .user = geteuid(), .limited = true, .until = clock_mono_ns() / 1000000 + limit_ms};

    return remove_tree(&r, dir, e);
}
