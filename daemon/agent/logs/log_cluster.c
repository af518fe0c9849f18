#include "daemon/agent/logs/log_cluster.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/agent/logs/log_part.h"
#include "daemon/supervisor/protocol/log_place.h"

#define ID_BYTES 256
#define FORMER_MOST 1000

static char *record_path(const char *log_dir, const char *node)
{
    return xasprintf("%s/cluster.%s", log_dir, node);
}

/* NULL: none is recorded. */
static enum err_code record_read(const char *path, char **cluster, struct err *e)
{
    struct buf text = {0};

    *cluster = NULL;
    if (file_presence(path) == FILE_MISSING)
        return ERR_OK;
    if (file_read(path, ID_BYTES, &text, e)) {
        buf_release(&text);
        return e->code;
    }
    *cluster = buf_steal(&text);
    (*cluster)[strcspn(*cluster, "\n")] = '\0';
    return ERR_OK;
}

static enum err_code record_write(const char *path, const char *cluster, struct err *e)
{
    CLEANUP(free_text) char *line = xasprintf("%s\n", cluster);

    return file_write_atomic(path, line, strlen(line), LOG_PLACE_FILE_MODE, e);
}

/* Makes a directory for the logs of a former cluster. Each move gets its own, because the node may have been in that cluster before. */
static enum err_code former_make(const char *log_dir, const char *cluster, char **out, struct err *e)
{
    for (int i = 1; i <= FORMER_MOST; i++) {
        CLEANUP(free_text) char *path = NULL;

        if (i == 1)
            path = xasprintf("%s/" LOG_CLUSTER_FORMER "%.8s", log_dir, cluster);
        else
            path = xasprintf("%s/" LOG_CLUSTER_FORMER "%.8s_%d", log_dir, cluster, i);
        if (!mkdir(path, LOG_PLACE_DIR_MODE)) {
            *out = steal(path);
            return ERR_OK;
        }
        if (errno != EEXIST)
            return err_sys(e, errno, "%s", path);
    }
    return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s has too many directories of former clusters", log_dir);
}

static enum err_code former_move(const char *log_dir, const char *node, const char *cluster, int *moved,
                                 struct err *e)
{
    CLEANUP(free_text) char *former = NULL;
    DIR *d = opendir(log_dir);
    enum err_code code = ERR_OK;
    struct dirent *entry;
    int64_t job;

    if (!d)
        return err_sys(e, errno, "%s", log_dir);
    while (!code && !(code = file_next_entry(d, log_dir, &entry, e)) && entry) {
        CLEANUP(free_text) char *from = paths_join(log_dir, entry->d_name);
        CLEANUP(free_text) char *to = NULL;

        if (!log_part_of_job(dirfd(d), entry->d_name, &job) || !log_part_find(from, node, NULL))
            continue;
        if (!former)
            code = former_make(log_dir, cluster, &former, e);
        if (code)
            break;
        to = paths_join(former, entry->d_name);
        code = log_part_move(from, node, to, e);
        ++*moved;
    }
    closedir(d);
    return code;
}

enum err_code log_cluster_note(const char *log_dir, const char *node, const char *cluster, struct err *e)
{
    CLEANUP(free_text) char *path = record_path(log_dir, node);

    if (!file_exists(log_dir) || file_presence(path) != FILE_MISSING)
        return ERR_OK;
    return record_write(path, cluster, e);
}

enum err_code log_cluster_enter(const char *log_dir, const char *node, const char *cluster, struct err *e)
{
    CLEANUP(free_text) char *path = record_path(log_dir, node);
    CLEANUP(free_text) char *recorded = NULL;
    int moved = 0;

    if (file_mkdirs(log_dir, LOG_PLACE_DIR_MODE, e)) {
        log_warn("no_log_directory", "why=%s", LOG_Q(e->msg)); /* no job can start without it */
        return ERR_OK;
    }
    if (record_read(path, &recorded, e))
        return e->code;
    if (recorded && !strcmp(recorded, cluster))
        return ERR_OK;
    if (former_move(log_dir, node, recorded && *recorded ? recorded : "unknown", &moved, e) ||
        record_write(path, cluster, e))
        return err_wrap(e, "move the logs of the former cluster aside");
    if (moved)
        log_info("former_logs_moved", "jobs=%d cluster=%.8s", moved, recorded ? recorded : "unknown");
    return ERR_OK;
}
