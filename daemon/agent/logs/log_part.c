#include "daemon/agent/logs/log_part.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/supervisor/protocol/log_place.h"

#define LEVELS 2 /* below the node's directory: local rank, file */

static DIR *dir_open_below(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d)
        close_fd(&fd);
    return d;
}

static int64_t later_change(int64_t newest, const struct stat *st)
{
    const int64_t changed = (int64_t)st->st_mtim.tv_sec * 1000;

    return changed > newest ? changed : newest;
}

/* The time of the newest change in the directory, wall clock ms, `depth` levels deep. Users own the lowest
 * levels. */
static int64_t dir_newest_change(int at, const char *name, int depth)
{
    DIR *d = dir_open_below(at, name);
    struct dirent *entry;
    int64_t newest = 0;

    while (d && (entry = readdir(d))) {
        struct stat st;

        /* "." counts: a file that was removed has changed the directory itself. */
        if (!strcmp(entry->d_name, "..") || fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        newest = later_change(newest, &st);
        if (depth && S_ISDIR(st.st_mode) && strcmp(entry->d_name, ".") != 0) {
            const int64_t changed = dir_newest_change(dirfd(d), entry->d_name, depth - 1);
            newest = changed > newest ? changed : newest;
        }
    }
    if (d)
        closedir(d);
    return newest;
}

static bool is_generation(const char *name)
{
    return !strncmp(name, "generation_", strlen("generation_"));
}

static bool is_supervisor_log(const char *name)
{
    return !strncmp(name, "supervisor.", strlen("supervisor."));
}

bool log_part_of_job(int at, const char *name, int64_t *job)
{
    DIR *d = NULL;
    struct dirent *entry;
    char *end;
    int found = 0;
    bool ours = *name >= '1' && *name <= '9';

    *job = strtoll(name, &end, 10);
    if (!ours || *end)
        return false;
    d = dir_open_below(at, name);
    while (d && (entry = readdir(d))) {
        if (is_generation(entry->d_name) || is_supervisor_log(entry->d_name))
            found++; /* after a removal that failed, maybe only some of these are left */
        else
            ours = ours && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."));
    }
    if (d)
        closedir(d);
    return ours && found;
}

bool log_part_find(const char *job_dir, const char *node, int64_t *newest_ms)
{
    CLEANUP(free_text) char *log = xasprintf("supervisor.%s.log", node);
    DIR *d = dir_open_below(AT_FDCWD, job_dir);
    struct dirent *entry;
    int64_t newest = 0;
    bool found = false;
    struct stat st;

    while (d && (entry = readdir(d))) {
        CLEANUP(free_text) char *dir = xasprintf("%s/%s", entry->d_name, node);

        if (!is_generation(entry->d_name) || fstatat(dirfd(d), dir, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        found = true;
        newest = later_change(newest, &st);
        if (newest_ms) {
            const int64_t changed = dir_newest_change(dirfd(d), dir, LEVELS);
            newest = changed > newest ? changed : newest;
        }
    }
    if (d && !fstatat(dirfd(d), log, &st, AT_SYMLINK_NOFOLLOW)) {
        found = true;
        newest = later_change(newest, &st);
    }
    if (d)
        closedir(d);
    if (newest_ms)
        *newest_ms = newest;
    return found;
}

/* Moves the node's logs of one generation to `to`, or removes them if that is NULL. */
static enum err_code generation_take(const char *from, const char *generation, const char *node,
                                     const char *to, struct err *e)
{
    CLEANUP(free_text) char *above = NULL;
    CLEANUP(free_text) char *target = NULL;

    if (!to)
        return file_remove_tree(from, e);
    above = xasprintf("%s/%s", to, generation);
    target = paths_join(above, node);
    if (file_mkdirs(above, LOG_PLACE_DIR_MODE, e))
        return e->code;
    return rename(from, target) ? err_sys(e, errno, "move %s to %s", from, target) : ERR_OK;
}

static enum err_code generations_take(DIR *d, const char *job_dir, const char *node, const char *to,
                                      struct err *e)
{
    struct dirent *entry;
    enum err_code code;

    while ((code = file_next_entry(d, job_dir, &entry, e)) == ERR_OK && entry) {
        CLEANUP(free_text) char *dir = xasprintf("%s/%s/%s", job_dir, entry->d_name, node);

        if (!is_generation(entry->d_name) || !file_exists(dir))
            continue;
        if (generation_take(dir, entry->d_name, node, to, e))
            return e->code;
        (void)unlinkat(dirfd(d), entry->d_name, AT_REMOVEDIR); /* stays while it holds other nodes' parts */
    }
    return code;
}

static enum err_code supervisor_log_take(const char *job_dir, const char *node, const char *to, struct err *e)
{
    CLEANUP(free_text) char *log = xasprintf("%s/supervisor.%s.log", job_dir, node);
    CLEANUP(free_text) char *target = NULL;

    if (!to)
        return unlink(log) && errno != ENOENT ? err_sys(e, errno, "remove %s", log) : ERR_OK;
    target = xasprintf("%s/supervisor.%s.log", to, node);
    if (file_mkdirs(to, LOG_PLACE_DIR_MODE, e))
        return e->code;
    return rename(log, target) && errno != ENOENT ? err_sys(e, errno, "move %s to %s", log, target) : ERR_OK;
}

static enum err_code part_take(const char *job_dir, const char *node, const char *to, struct err *e)
{
    DIR *d = dir_open_below(AT_FDCWD, job_dir);
    enum err_code code;

    if (!d)
        return errno == ENOENT ? ERR_OK : err_sys(e, errno, "%s", job_dir);
    code = generations_take(d, job_dir, node, to, e);
    closedir(d);
    if (!code) /* last: while anything is left, log_part_find finds the part */
        code = supervisor_log_take(job_dir, node, to, e);
    if (!code)
        (void)rmdir(job_dir);
    return code;
}

enum err_code log_part_remove(const char *job_dir, const char *node, struct err *e)
{
    return part_take(job_dir, node, NULL, e);
}

enum err_code log_part_move(const char *job_dir, const char *node, const char *to, struct err *e)
{
    return part_take(job_dir, node, to, e);
}
