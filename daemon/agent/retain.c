#include "daemon/agent/retain.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"

/* The newest change below dir, in wall ms. Four levels: job, generation, node, local rank. */
static int64_t newest_below(const char *dir, int depth)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    int64_t newest = 0;

    while (d && (entry = readdir(d))) {
        CLEANUP(free_text) char *path = paths_join(dir, entry->d_name);
        struct stat st;
        int64_t at;

        if (!strcmp(entry->d_name, "..") || lstat(path, &st))
            continue;
        at = (int64_t)st.st_mtim.tv_sec * 1000;
        newest = at > newest ? at : newest;
        if (depth && S_ISDIR(st.st_mode) && strcmp(entry->d_name, ".") != 0) {
            at = newest_below(path, depth - 1);
            newest = at > newest ? at : newest;
        }
    }
    if (d)
        closedir(d);
    return newest;
}

static bool is_job(const char *name, int64_t *job)
{
    char *end;

    if (*name < '1' || *name > '9')
        return false;
    *job = strtoll(name, &end, 10);
    return !*end;
}

/* Holds generations and nothing else: somebody's directory called 2024 is not a job's. */
static bool is_ours(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    int generations = 0;
    bool ours = true;

    while (d && (entry = readdir(d))) {
        if (!strncmp(entry->d_name, "generation_", strlen("generation_")))
            generations++;
        else
            ours = ours && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."));
    }
    if (d)
        closedir(d);
    return ours && generations;
}

enum err_code retain_logs(const char *log_dir, int64_t keep_ms, int64_t now_wall_ms,
                          bool (*wanted)(void *ctx, int64_t job), void *ctx, int *removed, struct err *e)
{
    DIR *d = opendir(log_dir);
    enum err_code code = ERR_OK;
    struct dirent *entry;
    int64_t job;

    *removed = 0;
    if (!d)
        return errno == ENOENT ? ERR_OK : err_sys(e, errno, "%s", log_dir);
    while (!code && (entry = readdir(d))) {
        CLEANUP(free_text) char *path = NULL;

        if (!is_job(entry->d_name, &job) || wanted(ctx, job))
            continue;
        path = paths_join(log_dir, entry->d_name);
        if (!is_ours(path) || newest_below(path, 4) + keep_ms > now_wall_ms)
            continue;
        code = file_remove_tree(path, e);
        *removed += !code;
    }
    closedir(d);
    return code;
}
