#include "daemon/agent/logs/log_expiry_pass.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"

#define LEVELS 4 /* generation, node, local rank, file */

static DIR *dir_open_below(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d)
        close_fd(&fd);
    return d;
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
        int64_t changed;

        /* "." counts: a file that was removed has changed the directory itself. */
        if (!strcmp(entry->d_name, "..") || fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        changed = (int64_t)st.st_mtim.tv_sec * 1000;
        newest = changed > newest ? changed : newest;
        if (depth && S_ISDIR(st.st_mode) && strcmp(entry->d_name, ".") != 0) {
            changed = dir_newest_change(dirfd(d), entry->d_name, depth - 1);
            newest = changed > newest ? changed : newest;
        }
    }
    if (d)
        closedir(d);
    return newest;
}

static bool name_is_job(const char *name, int64_t *job)
{
    char *end;

    if (*name < '1' || *name > '9')
        return false;
    *job = strtoll(name, &end, 10);
    return !*end;
}

static bool text_starts_with(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

/* A job's directory holds generations and logs of supervisors, and nothing else; after a removal that
 * failed, maybe only some of these. A user's directory may be called 2024. */
static bool dir_is_job_logs(int at, const char *name)
{
    DIR *d = dir_open_below(at, name);
    struct dirent *entry;
    int found = 0;
    bool ours = d;

    while (d && (entry = readdir(d))) {
        if (text_starts_with(entry->d_name, "generation_") || text_starts_with(entry->d_name, "supervisor."))
            found++;
        else
            ours = ours && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."));
    }
    if (d)
        closedir(d);
    return ours && found;
}

bool log_expiry_finds(const char *log_dir, int64_t job)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%" PRId64, log_dir, job);

    return dir_is_job_logs(AT_FDCWD, path);
}

enum err_code log_expiry_pass(const char *log_dir, int64_t keep_ms, int64_t now_wall_ms,
                              enum log_fate (*fate)(void *ctx, int64_t job), void *ctx, int *removed,
                              struct err *e)
{
    DIR *d = opendir(log_dir);
    enum err_code code = ERR_OK;
    struct dirent *entry;
    int64_t job;

    *removed = 0;
    if (!d)
        return errno == ENOENT ? ERR_OK : err_sys(e, errno, "%s", log_dir);
    while ((entry = readdir(d))) {
        CLEANUP(free_text) char *path = NULL;
        struct err why;

        const enum log_fate end = name_is_job(entry->d_name, &job) ? fate(ctx, job) : LOGS_STAY;
        if (end == LOGS_STAY || !dir_is_job_logs(dirfd(d), entry->d_name))
            continue;
        if (end == LOGS_EXPIRE && dir_newest_change(dirfd(d), entry->d_name, LEVELS) + keep_ms > now_wall_ms)
            continue;
        path = paths_join(log_dir, entry->d_name);
        if (!file_remove_tree(path, &why)) {
            ++*removed;
        } else if (!code) { /* go on: a user can make a directory that cannot be removed */
            *e = why;
            code = why.code;
        }
    }
    closedir(d);
    return code;
}
