#include "daemon/agent/logs/log_expiry_pass.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/agent/logs/log_part.h"

static DIR *dir_open_below(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d)
        close_fd(&fd);
    return d;
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

bool log_expiry_finds(const char *log_dir, const char *node, int64_t job)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%" PRId64, log_dir, job);

    return dir_is_job_logs(AT_FDCWD, path) && log_part_find(path, node, NULL);
}

enum err_code log_expiry_pass(const char *log_dir, const char *node, int64_t keep_ms, int64_t now_wall_ms,
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
        CLEANUP(free_text) char *path = paths_join(log_dir, entry->d_name);
        int64_t newest_ms;
        struct err why;

        const enum log_fate end = name_is_job(entry->d_name, &job) ? fate(ctx, job) : LOGS_STAY;
        if (end == LOGS_STAY || !dir_is_job_logs(dirfd(d), entry->d_name))
            continue;
        if (!log_part_find(path, node, &newest_ms) ||
            (end == LOGS_EXPIRE && newest_ms + keep_ms > now_wall_ms))
            continue;
        if (!log_part_remove(path, node, &why)) {
            ++*removed;
        } else if (!code) { /* go on: a user can make a directory that cannot be removed */
            *e = why;
            code = why.code;
        }
    }
    closedir(d);
    return code;
}
