#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/open.h"
#include "store/schema.h"
#include "store/store_state.h"

static const struct refused_fs {
    uint32_t magic;
    const char *name;
} refused[] = {
    {0x00006969, "NFS"},   {0x0000517b, "SMB"},      {0xff534d42, "CIFS"},     {0xfe534d42, "SMB2"},
    {0x00c36400, "Ceph"},  {0x0bd00bd0, "Lustre"},   {0x5346414f, "AFS"},      {0x6b414653, "AFS"},
    {0x01021997, "9p"},    {0x47504653, "GPFS"},     {0x19830326, "BeeGFS"},   {0x73757245, "Coda"},
    {0xaad7aaea, "PanFS"}, {0x00023222, "OrangeFS"}, {0x20030528, "OrangeFS"}, {0x01161970, "GFS2"},
    {0x7461636f, "OCFS2"},
};

const char *store_refused_fs(long magic)
{
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        if (refused[i].magic == (uint32_t)magic)
            return refused[i].name;
    return NULL;
}

static enum err_code store_check_fs(const char *dir, struct err *e)
{
    struct statfs fs;
    if (statfs(dir, &fs) != 0)
        return err_sys(e, errno, "%s", dir);
    const char *name = store_refused_fs((long)fs.f_type);
    if (name)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "%s is on %s, where locks and the write-ahead log cannot be trusted: put the state on a"
            " local disk",
            dir, name);
    return ERR_OK;
}

static void lock_holder_name(const char *path, char *out, size_t size)
{
    struct err ignored;
    CLEANUP(buf_release) struct buf text = {0};
    const bool known = file_read(path, 64, &text, &ignored) == ERR_OK && text.len > 0;
    const long pid = known ? strtol(text.data, NULL, 10) : 0;
    if (pid > 0)
        snprintf(out, size, "process %ld", pid);
    else
        snprintf(out, size, "another process");
}

/* The file holds the pid of the lock's holder, for the message of a second process that wants the lock. */
static enum err_code store_take_lock(struct store *s, struct err *e)
{
    CLEANUP(free_text) char *path = xasprintf("%s/lock", s->dir);
    if (file_lock(path, &s->lock_fd, e) != ERR_OK) {
        if (e->code != ERR_FAILED_PRECONDITION)
            return e->code;
        char holder[48];
        lock_holder_name(path, holder, sizeof holder);
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "%s is in use by %s: stop that ddp-coordinator first, or give this one another --state", s->dir,
            holder);
    }
    char text[24];
    const int len = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(s->lock_fd, 0) != 0 || pwrite(s->lock_fd, text, (size_t)len, 0) != len)
        log_debug("lock_without_pid", "path=%s why=%s", LOG_Q(path),
                  LOG_Q(strerror(errno))); /* a full disk */
    return ERR_OK;
}

enum err_code store_lock(struct store *s, struct err *e)
{
    if (file_mkdirs(s->dir, 0700, e) != ERR_OK || store_check_fs(s->dir, e) != ERR_OK)
        return e->code;
    return store_take_lock(s, e);
}

static enum err_code store_open_with(struct store **out, const char *dir, enum db_sync sync, bool accept_loss,
                                     struct err *e)
{
    struct store *s = xcalloc(1, sizeof *s);
    s->lock_fd = s->mark_file.fd = -1;
    s->dir = xstrdup(dir);
    s->sync = sync;
    s->accept_loss = accept_loss;
    if (store_lock(s, e) != ERR_OK || open_database(s, e) != ERR_OK) {
        store_close(s);
        return e->code;
    }
    *out = s;
    return ERR_OK;
}

enum err_code store_open(struct store **out, const char *dir, struct err *e)
{
    return store_open_with(out, dir, DB_SYNC_FULL, false, e);
}

enum err_code store_open_accepting(struct store **out, const char *dir, struct err *e)
{
    return store_open_with(out, dir, DB_SYNC_FULL, true, e);
}

enum err_code store_open_temporary(struct store **out, const char *dir, struct err *e)
{
    return store_open_with(out, dir, DB_SYNC_OFF, false, e);
}

void store_close(struct store *s)
{
    if (!s)
        return;
    open_release(s);
    close_fd(&s->lock_fd);
    free(s->dir);
    free(s);
}

const char *store_cluster_id(const struct store *s)
{
    return s->mark.cluster_id;
}

int64_t store_epoch(const struct store *s)
{
    return s->mark.epoch;
}

struct store_loss store_loss(const struct store *s)
{
    return s->loss;
}

bool store_deferred(const struct store *s)
{
    return s->deferred;
}

const uint8_t *store_card_key(const struct store *s)
{
    return s->card_key;
}

int64_t store_schema(const struct store *s)
{
    (void)s;
    return schema_latest;
}

int64_t store_room(const struct store *s)
{
    struct statvfs fs;
    if (statvfs(s->dir, &fs) != 0)
        return INT64_MAX;
    return (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
}
