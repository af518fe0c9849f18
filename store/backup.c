#include "store/backup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/backup_copy.h"
#include "store/content.h"
#include "store/loss.h"
#include "store/schema.h"
#include "store/store_state.h"

#define CHECK_MS 60000
#define ROOM_LEFT (16 << 20)
#define ABANDONED_S 3600
#define STEP_PAGES 256 /* 1 MiB */

char *backup_name(const char *dir)
{
    char stamp[64];
    struct tm tm;
    const time_t now = time(NULL);

    gmtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "ddp-%Y%m%dT%H%M%SZ.db", &tm);
    return xasprintf("%s/%s", dir, stamp);
}

/* Opens a database for reading: neither the file nor its log is changed. */
static enum err_code backup_open_source(sqlite3 **out, const char *path, struct err *e)
{
    CLEANUP(db_close) sqlite3 *db = NULL;
    const int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);

    if (rc != SQLITE_OK)
        return db_error(db, rc, e, path);
    sqlite3_extended_result_codes(db, 1);
    sqlite3_busy_timeout(db, 5000);
    *out = steal(db);
    return ERR_OK;
}

/* Copies all pages, as they are at one moment. */
static enum err_code backup_copy_pages(sqlite3 *from, sqlite3 *to, const atomic_bool *stop, struct err *e)
{
    sqlite3_backup *copy = sqlite3_backup_init(to, "main", from, "main");
    int step = SQLITE_OK;

    if (!copy)
        return db_error(to, sqlite3_extended_errcode(to), e, "copy");
    while (step == SQLITE_OK && !(stop && *stop))
        step = fault_hit("store.backup") ? SQLITE_FULL : sqlite3_backup_step(copy, stop ? STEP_PAGES : -1);
    const int finish = sqlite3_backup_finish(copy);
    if (step == SQLITE_OK)
        return err_set(e, ERR_CANCELLED, "the copy was stopped");
    const int rc = step == SQLITE_DONE ? finish : step;
    return rc == SQLITE_OK ? ERR_OK : db_error(NULL, rc, e, "copy");
}

/* A copy that can be stopped is made in steps. Without a transaction over all of them, each commit of the coordinator in between would restart
 * it. */
static enum err_code backup_copy_stoppable(sqlite3 *from, sqlite3 *to, const atomic_bool *stop, struct err *e)
{
    struct err ignored;

    if (db_exec(from, "BEGIN; SELECT count(*) FROM sqlite_schema", e) != ERR_OK)
        return e->code;
    const enum err_code code = backup_copy_pages(from, to, stop, e);
    (void)(db_exec(from, "ROLLBACK", &ignored) == ERR_OK); /* it has only read */
    return code;
}

enum err_code backup_pages(sqlite3 *source, const char *to, const atomic_bool *stop, struct content *content,
                           struct err *e)
{
    CLEANUP(db_close) sqlite3 *copy = NULL;

    if (db_make_file(to, e) != ERR_OK)
        return e->code;
    const int rc = sqlite3_open_v2(to, &copy, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK)
        return db_error(copy, rc, e, to);
    sqlite3_extended_result_codes(copy, 1);
    if ((stop ? backup_copy_stoppable : backup_copy_pages)(source, copy, stop, e) != ERR_OK ||
        db_exec(copy, "PRAGMA journal_mode=DELETE", e) != ERR_OK ||
        content_check(copy, CHECK_MS, stop, e) != ERR_OK || content_read(copy, content, e) != ERR_OK)
        return e->code;
    return ERR_OK;
}

enum err_code backup_copy(const char *from, const char *to, const atomic_bool *stop, struct content *content,
                          struct err *e)
{
    CLEANUP(db_close) sqlite3 *source = NULL;

    if (backup_open_source(&source, from, e) != ERR_OK)
        return e->code;
    if (backup_pages(source, to, stop, content, e) != ERR_OK)
        return err_wrap(e, "%s", from);
    return ERR_OK;
}

static enum err_code backup_sync_file(const char *path, struct err *e)
{
    CLEANUP(close_fd) int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0 || fsync(fd) != 0)
        return err_sys(e, errno, "sync %s", path);
    return ERR_OK;
}

static enum err_code backup_sync_parent(const char *path, struct err *e)
{
    CLEANUP(free_text) char *copy = xstrdup(path);
    return file_sync_dir(dirname(copy), e);
}

static void backup_remove_file(const char *path)
{
    CLEANUP(free_text) char *journal = xasprintf("%s-journal", path);

    unlink(path);
    unlink(journal);
}

/* The copy must leave room for the coordinator itself if both are on one disk. */
static enum err_code backup_check_room(const char *from, const char *dir, struct err *e)
{
    struct stat st;
    struct statvfs fs;

    if (stat(from, &st) != 0)
        return err_sys(e, errno, "%s", from);
    if (statvfs(dir, &fs) == 0 && (int64_t)fs.f_bavail * (int64_t)fs.f_frsize < st.st_size + ROOM_LEFT)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "no space in %s for a copy of %lld MiB: free some space",
                       dir, (long long)(st.st_size >> 20) + 1);
    return ERR_OK;
}

enum err_code backup_make(const char *state, const char *to, const atomic_bool *stop, struct err *e)
{
    CLEANUP(free_text) char *from = xasprintf("%s/ddp.db", state);
    CLEANUP(free_text) char *tmp = xasprintf("%s.tmp", to);
    CLEANUP(free_text) char *copy = xstrdup(to);
    struct finding found = {0};

    /* The mark is read first. The coordinator goes on committing, so the copy may be ahead of this mark; a
     * copy that is behind it lacks commits. */
    if (file_mkdirs(dirname(copy), 0700, e) != ERR_OK ||
        mark_read(state, &found.mark, &found.mark_state, e) != ERR_OK)
        return e->code;
    backup_remove_file(tmp);
    if (backup_check_room(from, copy, e) != ERR_OK)
        return e->code;
    if (backup_copy(from, tmp, stop, &found.content, e) != ERR_OK || loss_check(from, &found, e) != ERR_OK ||
        backup_sync_file(tmp, e) != ERR_OK) {
        backup_remove_file(tmp);
        return e->code;
    }
    /* The copy is synced before the rename, and the directory after it: a crash leaves no half backup. */
    if (rename(tmp, to) != 0) {
        const int why = errno;
        backup_remove_file(tmp);
        return err_sys(e, why, "rename to %s", to);
    }
    return backup_sync_parent(to, e);
}

/* ---- what an interrupted backup left ---- */

static bool backup_name_is_unfinished(const char *name)
{
    return fnmatch("ddp-[0-9]*Z.db.tmp*", name, 0) == 0;
}

/* A backup in progress, which a user may make beside the coordinator's, writes its file or has checked it for at most CHECK_MS. A file from the
 * future is from a time when the clock was ahead. */
static bool backup_is_abandoned(const char *path)
{
    struct stat st;
    const time_t now = time(NULL);

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
           (st.st_mtim.tv_sec < now - ABANDONED_S || st.st_mtim.tv_sec > now + ABANDONED_S);
}

enum err_code backup_remove_unfinished(const char *dir, struct err *e)
{
    struct dirent *entry = NULL;
    enum err_code code;
    DIR *d = opendir(dir);

    if (!d)
        return errno == ENOENT ? ERR_OK : err_sys(e, errno, "%s", dir);
    while ((code = file_next_entry(d, dir, &entry, e)) == ERR_OK && entry) {
        CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, entry->d_name);
        if (!backup_name_is_unfinished(entry->d_name) || !backup_is_abandoned(path))
            continue;
        if (unlink(path) != 0 && errno != ENOENT) {
            code = err_sys(e, errno, "remove %s", path);
            break;
        }
        log_info("backup_removed", "file=%s why=\"its backup was interrupted\"", LOG_Q(path));
    }
    closedir(d);
    return code;
}

/* ---- listing backups ---- */

/* Backups of one cluster are ordered by their commits: the clock may have been wrong when some of them were made. The
 * directory may also hold backups of a former cluster, whose commits have no relation to these. */
static int backup_newer_first(const void *a, const void *b)
{
    const struct backup *x = a, *y = b;

    if (x->own != y->own)
        return x->own ? -1 : 1;
    const int cluster = strcmp(x->cluster_id, y->cluster_id);
    if (cluster)
        return cluster;
    if (x->sequence != y->sequence)
        return x->sequence > y->sequence ? -1 : 1;
    if (x->time_ms != y->time_ms)
        return x->time_ms > y->time_ms ? -1 : 1;
    return strcmp(y->path, x->path);
}

static bool backup_describe(const char *path, struct backup *out)
{
    CLEANUP(db_close) sqlite3 *db = NULL;
    struct content content;
    struct stat st;
    struct err e;

    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || backup_open_source(&db, path, &e) != ERR_OK ||
        content_read(db, &content, &e) != ERR_OK || content.schema == 0)
        return false;
    *out = (struct backup){.path = xstrdup(path),
                           .time_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000,
                           .sequence = content.sequence,
                           .jobs = content.jobs,
                           .last_job = content.last_job};
    memcpy(out->cluster_id, content.cluster_id, ID_TEXT);
    return true;
}

static bool backup_name_is_automatic(const char *name)
{
    return fnmatch("ddp-[0-9]*Z.db", name, 0) == 0;
}

/* Left out: unfinished copies, and databases that a restore or a loss has set aside. */
static bool backup_name_is_possible(const char *name)
{
    return name[0] != '.' && fnmatch("*.tmp", name, 0) != 0 && fnmatch("ddp.db.*-[0-9]*Z", name, 0) != 0;
}

static bool backup_name_is_rescued(const char *name)
{
    return fnmatch("ddp.db.rescued-*Z", name, 0) == 0;
}

static bool backup_is_file(const char *path, const struct stat *file)
{
    struct stat st;

    return stat(path, &st) == 0 && st.st_dev == file->st_dev && st.st_ino == file->st_ino;
}

/* except: a file that is none of them; NULL: there is no such file. The list is not sorted. */
static enum err_code backup_list_names(const char *dir, bool (*wanted)(const char *name),
                                       const struct stat *except, struct backup **out, size_t *count,
                                       struct err *e)
{
    struct backup *list = NULL;
    struct dirent *entry = NULL;
    size_t n = 0, cap = 0;
    enum err_code code;
    DIR *d = opendir(dir);

    *out = NULL;
    *count = 0;
    if (!d)
        return errno == ENOENT ? ERR_OK : err_sys(e, errno, "%s", dir);
    while ((code = file_next_entry(d, dir, &entry, e)) == ERR_OK && entry) {
        CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, entry->d_name);
        if (!wanted(entry->d_name) || (except && backup_is_file(path, except)))
            continue;
        list = array_grow(list, n, &cap, sizeof *list);
        if (!backup_describe(path, &list[n]))
            continue;
        list[n].automatic = backup_name_is_automatic(entry->d_name);
        n++;
    }
    closedir(d);
    if (code != ERR_OK) {
        backups_free(list, n);
        return code;
    }
    *out = list;
    *count = n;
    return ERR_OK;
}

/* The cluster of `state` comes first, if its mark can be read. */
static void backup_sort(struct backup *list, size_t count, const char *state)
{
    struct mark mark = {0};
    enum mark_state mark_state;
    struct err ignored;
    const bool known = mark_read(state, &mark, &mark_state, &ignored) == ERR_OK && mark_state == MARK_GOOD;

    for (size_t i = 0; i < count; i++)
        list[i].own = known && strcmp(list[i].cluster_id, mark.cluster_id) == 0;
    if (count)
        qsort(list, count, sizeof *list, backup_newer_first);
}

enum err_code backup_list(const char *dir, const char *state, struct backup **out, size_t *count,
                          struct err *e)
{
    if (backup_list_names(dir, backup_name_is_automatic, NULL, out, count, e) != ERR_OK)
        return e->code;
    backup_sort(*out, *count, state);
    return ERR_OK;
}

enum err_code backup_list_all(const char *dir, const char *state, struct backup **out, size_t *count,
                              struct err *e)
{
    CLEANUP(free_text) char *own = xasprintf("%s/ddp.db", state);
    struct stat st;

    /* The backup directory may be the state directory, whose ddp.db is the database itself and not a backup. */
    if (backup_list_names(dir, backup_name_is_possible, stat(own, &st) == 0 ? &st : NULL, out, count, e) !=
        ERR_OK)
        return e->code;
    backup_sort(*out, *count, state);
    return ERR_OK;
}

enum err_code backup_list_rescued(const char *state, struct backup **out, size_t *count, struct err *e)
{
    if (backup_list_names(state, backup_name_is_rescued, NULL, out, count, e) != ERR_OK)
        return e->code;
    backup_sort(*out, *count, state);
    return ERR_OK;
}

void backups_free(struct backup *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(list[i].path);
    free(list);
}

enum err_code backup_prune(const char *dir, size_t keep, const char *made, struct err *e)
{
    struct backup *list, newest;
    size_t count, kept = 1; /* `made` */
    enum err_code code = ERR_OK;

    if (!backup_describe(made, &newest))
        return err_set(e, ERR_DATA_LOSS, "%s: cannot be read after it was made", made);
    if (backup_list_names(dir, backup_name_is_automatic, NULL, &list, &count, e) != ERR_OK) {
        free(newest.path);
        return e->code;
    }
    /* Nothing is newer than `made`. A backup with more commits is from before a loss that nobody has noticed. */
    for (size_t i = 0; i < count; i++)
        list[i].own =
            strcmp(list[i].cluster_id, newest.cluster_id) == 0 && list[i].sequence <= newest.sequence;
    if (count)
        qsort(list, count, sizeof *list, backup_newer_first);
    for (size_t i = 0; i < count && code == ERR_OK; i++) {
        if (strcmp(list[i].path, made) == 0 || kept++ < keep)
            continue;
        if (unlink(list[i].path) != 0)
            code = err_sys(e, errno, "remove %s", list[i].path);
    }
    free(newest.path);
    backups_free(list, count);
    return code;
}
