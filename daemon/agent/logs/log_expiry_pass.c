#include "daemon/agent/logs/log_expiry_pass.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/paths.h"
#include "daemon/agent/logs/log_cluster.h"
#include "daemon/agent/logs/log_part.h"

bool log_expiry_finds(const char *log_dir, const char *node, int64_t job)
{
    CLEANUP(free_text) char *name = xasprintf("%" PRId64, job);
    CLEANUP(free_text) char *path = paths_join(log_dir, name);
    CLEANUP(close_fd) int top = open(log_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return top >= 0 && log_part_of_job(top, name, &job) && log_part_find(path, node, NULL);
}

struct expiry {
    const char *node;
    int64_t keep_ms, now_ms;
    enum log_fate (*fate)(void *ctx, int64_t job);
    void *ctx;
    int removed;
    struct err first; /* the first error; code ERR_OK: none */
};

static void expiry_fail(struct expiry *x, const struct err *e)
{
    if (!x->first.code)
        x->first = *e;
}

/* former: the directory of a former cluster, whose jobs have all ended on this node. */
static void expiry_visit(struct expiry *x, const char *dir, bool former)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    struct err e;

    if (!d && errno != ENOENT) {
        (void)err_sys(&e, errno, "%s", dir);
        expiry_fail(x, &e);
    }
    while (d && (entry = readdir(d))) {
        CLEANUP(free_text) char *path = paths_join(dir, entry->d_name);
        enum log_fate end = x->keep_ms ? LOGS_EXPIRE : LOGS_STAY;
        int64_t newest_ms, job;

        if (!former && !strncmp(entry->d_name, LOG_CLUSTER_FORMER, strlen(LOG_CLUSTER_FORMER))) {
            expiry_visit(x, path, true);
            (void)rmdir(path); /* stays while it holds logs */
            continue;
        }
        if (!log_part_of_job(dirfd(d), entry->d_name, &job))
            continue;
        if (!former)
            end = x->fate(x->ctx, job);
        if (end == LOGS_STAY || !log_part_find(path, x->node, &newest_ms) ||
            (end == LOGS_EXPIRE && newest_ms + x->keep_ms > x->now_ms))
            continue;
        if (log_part_remove(path, x->node, &e))
            expiry_fail(x, &e); /* go on: a user can make a directory that cannot be removed */
        else
            x->removed++;
    }
    if (d)
        closedir(d);
}

enum err_code log_expiry_pass(const char *log_dir, const char *node, int64_t keep_ms, int64_t now_wall_ms,
                              enum log_fate (*fate)(void *ctx, int64_t job), void *ctx, int *removed,
                              struct err *e)
{
    struct expiry x = {.node = node, .keep_ms = keep_ms, .now_ms = now_wall_ms, .fate = fate, .ctx = ctx};

    expiry_visit(&x, log_dir, false);
    *removed = x.removed;
    if (x.first.code)
        *e = x.first;
    return x.first.code;
}
