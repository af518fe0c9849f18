#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"

enum err_code fd_read_all(int fd, const char *path, size_t limit, struct buf *out, struct err *e)
{
    char chunk[16384];
    size_t total = 0;
    ssize_t n;

    while ((n = read(fd, chunk, sizeof(chunk))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "read %s", path);
        total += (size_t)n;
        if (total > limit)
            return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s: larger than %zu bytes", path, limit);
        buf_append(out, chunk, (size_t)n);
    }
    buf_append(out, "", 0);
    return ERR_OK;
}

enum err_code file_read(const char *path, size_t limit, struct buf *out, struct err *e)
{
    CLEANUP(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(e, errno, "open %s", path);
    return fd_read_all(fd, path, limit, out, e);
}

enum err_code fd_write_all(int fd, const void *data, size_t size, struct err *e)
{
    const char *at = data;

    while (size) {
        ssize_t n = write(fd, at, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "write");
        at += n;
        size -= (size_t)n;
    }
    return ERR_OK;
}

enum err_code fd_read_at(int fd, void *out, size_t size, uint64_t at, struct err *e)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(fd, (char *)out + done, size - done, (off_t)(at + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "read");
        if (n == 0)
            return err_set(e, ERR_DATA_LOSS, "has no byte %llu: truncated", (unsigned long long)(at + done));
        done += (size_t)n;
    }
    return ERR_OK;
}

enum err_code file_sync_dir(const char *dir, struct err *e)
{
    CLEANUP(close_fd) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(e, errno, "open %s", dir);
    if (fsync(fd) < 0)
        return err_sys(e, errno, "sync %s", dir);
    return ERR_OK;
}

static enum err_code write_content(int fd, const char *path, const void *data, size_t size, mode_t mode,
                                   bool synced, struct err *e)
{
    if (fault_hit("file.write"))
        return err_sys(e, ENOSPC, "write %s", path);
    if (fd_write_all(fd, data, size, e))
        return err_wrap(e, "%s", path);
    if (fchmod(fd, mode) < 0)
        return err_sys(e, errno, "chmod %s", path);
    if (synced && fsync(fd) < 0)
        return err_sys(e, errno, "sync %s", path);
    return ERR_OK;
}

enum err_code file_write_atomic(const char *path, const void *data, size_t size, mode_t mode, struct err *e)
{
    return file_write_renamed(path, data, size, mode, true, e);
}

enum err_code file_write_renamed(const char *path, const void *data, size_t size, mode_t mode, bool synced,
                                 struct err *e)
{
    CLEANUP(free_text) char *tmp = xasprintf("%s.tmp.XXXXXX", path);
    CLEANUP(free_text) char *copy = xstrdup(path);
    CLEANUP(close_fd) int fd = mkostemp(tmp, O_CLOEXEC);

    if (fd < 0)
        return err_sys(e, errno, "create %s", path);
    if (write_content(fd, path, data, size, mode, synced, e)) {
        unlink(tmp);
        return e->code;
    }
    errno = 0;
    if (fault_hit("file.rename") || rename(tmp, path) < 0) {
        int saved = errno ? errno : EIO;

        unlink(tmp);
        return err_sys(e, saved, "rename to %s", path);
    }
    return synced ? file_sync_dir(dirname(copy), e) : ERR_OK;
}

enum err_code file_next_entry(DIR *d, const char *path, struct dirent **out, struct err *e)
{
    errno = 0;
    *out = readdir(d);
    return !*out && errno ? err_sys(e, errno, "read directory %s", path) : ERR_OK;
}

enum err_code file_mkdirs(const char *dir, mode_t mode, struct err *e)
{
    CLEANUP(free_text) char *path = xstrdup(dir);
    struct stat st;

    for (char *at = path + 1; *path && *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        if (mkdir(path, mode) < 0 && errno != EEXIST)
            return err_sys(e, errno, "make directory %s", path);
        *at = '/';
    }
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make directory %s", dir);
    if (stat(path, &st) < 0)
        return err_sys(e, errno, "%s", dir);
    if (!S_ISDIR(st.st_mode))
        return err_sys(e, ENOTDIR, "make directory %s", dir);
    return ERR_OK;
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

enum file_presence file_presence(const char *path)
{
    if (file_exists(path))
        return FILE_PRESENT;
    return errno == ENOENT || errno == ENOTDIR ? FILE_MISSING : FILE_UNKNOWN;
}

enum err_code file_lock(const char *path, int *fd, struct err *e)
{
    CLEANUP(close_fd) int lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (lock < 0)
        return err_sys(e, errno, "open %s", path);
    if (flock(lock, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK)
            return err_set(e, ERR_FAILED_PRECONDITION, "%s: held by another process", path);
        return err_sys(e, errno, "lock %s", path);
    }
    *fd = lock;
    lock = -1;
    return ERR_OK;
}
