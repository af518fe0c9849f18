#include "trainer/snapshot/dir_lock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

#define HOLDER_LIMIT ((size_t)4 << 10)
#define CLUSTER_CHARS 8 /* as `ddpctl version` shows it */

char *snapshot_holder_name(const struct snapshot_holder *h)
{
    if (!*h->host)
        return xstrdup("another process");
    if (!*h->cluster)
        return xasprintf("a standalone run on %s (pid %lld)", h->host, (long long)h->pid);
    return xasprintf("job %lld of cluster %.*s on %s (pid %lld)", (long long)h->job, CLUSTER_CHARS,
                     h->cluster, h->host, (long long)h->pid);
}

/* On a full disk the file stays empty. The lock itself needs no space. */
static void holder_write(int fd, const struct snapshot_place *place)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct jout o = {.buf = &text};
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    jout_open(&o, NULL, '{');
    jout_text(&o, "cluster", place->cluster);
    jout_int(&o, "job", place->job);
    jout_int(&o, "generation", place->generation);
    jout_text(&o, "host", host);
    jout_int(&o, "pid", getpid());
    jout_close(&o, '}');
    buf_putc(&text, '\n');
    if (pwrite(fd, text.data, text.len, 0) != (ssize_t)text.len || ftruncate(fd, (off_t)text.len))
        log_debug("snapshot_lock_unnamed", "why=%s", LOG_Q(strerror(errno)));
}

/* The holder may be writing the file just now; then it is not known. */
static void holder_read(const char *path, struct snapshot_holder *out)
{
    CLEANUP(buf_release) struct buf text = {0};
    CLEANUP(json_release) json_t *root = NULL;
    struct err ignored;
    *out = (struct snapshot_holder){.job = -1};
    if (file_read(path, HOLDER_LIMIT, &text, &ignored) ||
        json_parse(text.data ? text.data : "", text.len, HOLDER_LIMIT, &root, &ignored))
        return;
    snprintf(out->cluster, sizeof(out->cluster), "%s", json_get_text(root, "cluster", ""));
    snprintf(out->host, sizeof(out->host), "%s", json_get_text(root, "host", ""));
    out->job = json_get_int(root, "job", -1);
    out->generation = json_get_int(root, "generation", -1);
    out->pid = json_get_int(root, "pid", 0);
}

/* Whether the path still names the locked file. If the last holder removed the file after we opened it, the next process would
 * lock a new one. */
static bool names_file(const char *path, int fd)
{
    struct stat there, mine;
    return stat(path, &there) == 0 && fstat(fd, &mine) == 0 && there.st_dev == mine.st_dev &&
           there.st_ino == mine.st_ino;
}

enum err_code snapshot_lock_take(struct snapshot_lock *lock, const char *dir,
                                 const struct snapshot_place *place, struct snapshot_holder *holder,
                                 struct err *e)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, SNAPSHOT_LOCK_FILE);
    int fd = -1;
    *holder = (struct snapshot_holder){.job = -1};
    for (;;) {
        const enum err_code code = file_lock(path, &fd, e);
        if (code == ERR_FAILED_PRECONDITION) {
            holder_read(path, holder);
            return e->code = ERR_ALREADY_EXISTS;
        }
        if (code)
            return code;
        if (names_file(path, fd))
            break;
        close(fd);
    }
    holder_write(fd, place);
    lock->path = steal(path);
    lock->fd = fd;
    return ERR_OK;
}

void snapshot_lock_release(struct snapshot_lock *lock)
{
    if (lock->fd < 0)
        return;
    unlink(lock->path); /* before the lock ends, so that it is no other process's file */
    close(lock->fd);
    free(lock->path);
    *lock = (struct snapshot_lock){.fd = -1};
}
