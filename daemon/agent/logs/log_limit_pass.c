#include "daemon/agent/logs/log_limit_pass.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cut_file.h"
#include "base/file.h"
#include "base/file_at.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/agent/logs/log_cluster.h"
#include "daemon/agent/logs/log_part.h"

#define LEAST (512 << 10)     /* bytes: a file is not cut below this */
#define QUIET_MS (600 * 1000) /* an ended job's logs stay at least so long: a user may be reading them */

struct log_file {
    char *dir; /* below log_dir */
    const char *name;
    int64_t bytes;
};

struct log_files {
    struct log_file *items;
    size_t count, cap;
    int64_t bytes, newest_ms;
};

static void log_files_release(struct log_files *f)
{
    for (size_t i = 0; i < f->count; i++)
        free(f->items[i].dir);
    free(f->items);
}

static void pass_set_problem(struct log_limit_pass *r, const struct err *e)
{
    if (!r->problem.code)
        r->problem = *e;
}

/* ---- measuring */

static DIR *dir_open(int at, const char *name)
{
    struct err ignored;
    int fd = -1;
    DIR *d = file_at_open_dir(at, name, &fd, &ignored) ? NULL : fdopendir(fd);

    if (!d)
        close_fd(&fd);
    return d;
}

static void log_files_add(struct log_files *f, int at, const char *dir, const char *name)
{
    struct stat st;
    int64_t changed;

    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
        return;
    changed = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
    f->newest_ms = changed > f->newest_ms ? changed : f->newest_ms;
    f->items = array_grow(f->items, f->count, &f->cap, sizeof(*f->items));
    f->items[f->count++] = (struct log_file){xstrdup(dir), name, (int64_t)st.st_blocks * 512};
    f->bytes += (int64_t)st.st_blocks * 512;
}

/* Adds the logs of every local rank below dir. */
static void log_files_add_ranks(struct log_files *f, int top, const char *dir)
{
    DIR *d = dir_open(top, dir);
    const struct dirent *entry;

    while (d && (entry = readdir(d))) {
        CLEANUP(free_text) char *leaf = xasprintf("%s/%s", dir, entry->d_name);
        CLEANUP(close_fd) int fd = -1;
        struct err ignored;

        if (entry->d_name[0] < '0' || entry->d_name[0] > '9' || file_at_open_dir(top, leaf, &fd, &ignored))
            continue;
        log_files_add(f, fd, leaf, "stdout.log");
        log_files_add(f, fd, leaf, "stderr.log");
    }
    if (d)
        closedir(d);
}

/* The job's logs of this node only: on a shared file system the other nodes limit theirs. */
static void log_files_find(const struct log_limit_pass *r, int top, const char *name, struct log_files *out)
{
    DIR *d = dir_open(top, name);
    const struct dirent *entry;

    while (d && (entry = readdir(d))) {
        CLEANUP(free_text) char *dir = xasprintf("%s/%s/%s", name, entry->d_name, r->node);

        if (!strncmp(entry->d_name, "generation_", strlen("generation_")))
            log_files_add_ranks(out, top, dir);
    }
    if (d)
        closedir(d);
}

static struct log_usage *usage_get(struct log_limit_pass *r, const char *name)
{
    for (size_t i = 0; i < r->count; i++)
        if (!strcmp(r->usage[i].name, name))
            return &r->usage[i];
    r->usage = array_grow(r->usage, r->count, &r->cap, sizeof(*r->usage));
    r->usage[r->count] = (struct log_usage){.name = xstrdup(name)};
    return &r->usage[r->count++];
}

static bool job_is_live(const struct log_limit_pass *r, int64_t job)
{
    for (size_t i = 0; i < r->live_count; i++)
        if (r->live[i] == job)
            return true;
    return false;
}

static void usage_measure_job(struct log_limit_pass *r, int top, struct log_usage *u)
{
    CLEANUP(log_files_release) struct log_files files = {0};

    log_files_find(r, top, u->name, &files);
    u->bytes = files.bytes;
    u->newest_ms = files.newest_ms;
    u->settled = !u->live;
}

/* Measures the jobs below `dir`: "" or the directory of a former cluster, whose jobs have all ended on this node. */
static void usage_measure_dir(struct log_limit_pass *r, int top, const char *dir)
{
    int fd = openat(top, *dir ? dir : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    while (d && (entry = readdir(d))) {
        CLEANUP(free_text) char *name = xasprintf("%s%s%s", dir, *dir ? "/" : "", entry->d_name);
        char *end;
        int64_t job = strtoll(entry->d_name, &end, 10);
        struct log_usage *u;

        if (!*dir && !strncmp(name, LOG_CLUSTER_FORMER, strlen(LOG_CLUSTER_FORMER)))
            usage_measure_dir(r, top, name);
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || *end)
            continue;
        u = usage_get(r, name);
        u->there = true;
        u->live = !*dir && job_is_live(r, job);
        if (u->live || !u->settled) /* the logs of an ended job do not change */
            usage_measure_job(r, top, u);
    }
    if (d)
        closedir(d);
}

static void usage_measure_all(struct log_limit_pass *r, int top)
{
    size_t kept = 0;

    for (size_t i = 0; i < r->count; i++)
        r->usage[i].there = false;
    usage_measure_dir(r, top, "");
    for (size_t i = 0; i < r->count; i++)
        if (r->usage[i].there)
            r->usage[kept++] = r->usage[i];
        else
            free(r->usage[i].name);
    r->count = kept;
}

/* ---- cutting and removing */

static int size_descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x < y) - (x > y);
}

/* Fits sizes into a room: the size to which all larger ones must be cut. Smaller ones stay as they are, so
 * a job that writes little loses nothing. Sorts the sizes. */
static int64_t share_find(int64_t *sizes, size_t count, int64_t room)
{
    int64_t below = 0;

    qsort(sizes, count, sizeof(*sizes), size_descending);
    for (size_t i = 0; i < count; i++)
        below += sizes[i];
    for (size_t i = 0; i < count; i++) {
        below -= sizes[i]; /* sizes[0..i] are cut to the share, the rest stays */
        int64_t share = (room - below) / (int64_t)(i + 1);
        if (i + 1 == count || share >= sizes[i + 1])
            return share > 0 ? share : 0;
    }
    return 0;
}

static void file_cut(struct log_limit_pass *r, int top, const struct log_file *f, int64_t size)
{
    CLEANUP(close_fd) int dir = -1;
    CLEANUP(close_fd) int fd = -1;
    int64_t left_out;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};
    struct stat st;
    struct err e;

    if (file_at_open_dir(top, f->dir, &dir, &e) || file_at_open_plain(dir, f->name, O_RDWR, &fd, &st, &e)) {
        pass_set_problem(r, &e);
        return;
    }
    if (cut_file_middle(fd, size / 4, size - size / 4, &left_out, &e)) {
        if (e.code != ERR_FAILED_PRECONDITION) {
            err_wrap(&e, "%s/%s", f->dir, f->name);
            pass_set_problem(r, &e);
        }
        return;
    }
    times[1] = st.st_mtim; /* cutting is no output: worker_monitor reads this time */
    (void)futimens(fd, times);
    r->files_cut++;
}

/* Cuts to three quarters of the room: with less slack every further line would cut again. */
static void job_cut(struct log_limit_pass *r, int top, struct log_usage *u, int64_t room)
{
    CLEANUP(log_files_release) struct log_files files = {0};
    CLEANUP(free_text) char *memory = NULL;
    int64_t *sizes, share;

    log_files_find(r, top, u->name, &files);
    if (files.bytes <= room)
        return;
    memory = xcalloc(files.count + 1, sizeof(*sizes));
    sizes = (int64_t *)(void *)memory;
    for (size_t i = 0; i < files.count; i++)
        sizes[i] = files.items[i].bytes;
    share = share_find(sizes, files.count, room / 4 * 3);
    if (share < LEAST)
        share = LEAST;
    for (size_t i = 0; i < files.count; i++)
        if (files.items[i].bytes > share)
            file_cut(r, top, &files.items[i], share);
    usage_measure_job(r, top, u);
}

static int64_t usage_sum(const struct log_limit_pass *r)
{
    int64_t sum = 0;

    for (size_t i = 0; i < r->count; i++)
        sum += r->usage[i].bytes;
    return sum;
}

static struct log_usage *usage_oldest_ended(const struct log_limit_pass *r)
{
    struct log_usage *oldest = NULL;

    for (size_t i = 0; i < r->count; i++) {
        struct log_usage *u = &r->usage[i];

        if (!u->live && u->bytes && u->newest_ms + QUIET_MS < r->now_ms &&
            (!oldest || u->newest_ms < oldest->newest_ms))
            oldest = u;
    }
    return oldest;
}

static void job_logs_remove(struct log_limit_pass *r, struct log_usage *u)
{
    CLEANUP(free_text) char *path = paths_join(r->log_dir, u->name);
    struct err e;

    if (log_part_remove(path, r->node, &e))
        pass_set_problem(r, &e);
    else
        r->jobs_removed++;
    u->bytes = 0; /* even if it could not be removed: else every pass would try again */
}

static void total_enforce(struct log_limit_pass *r, int top)
{
    CLEANUP(free_text) char *memory = NULL;
    struct log_usage *oldest;
    int64_t *sizes, share;

    while (usage_sum(r) > r->total && (oldest = usage_oldest_ended(r)))
        job_logs_remove(r, oldest);
    if (usage_sum(r) <= r->total)
        return;
    memory = xcalloc(r->count + 1, sizeof(*sizes));
    sizes = (int64_t *)(void *)memory;
    for (size_t i = 0; i < r->count; i++)
        sizes[i] = r->usage[i].bytes;
    share = share_find(sizes, r->count, r->total);
    for (size_t i = 0; i < r->count; i++)
        if (r->usage[i].bytes > share)
            job_cut(r, top, &r->usage[i], share);
}

void log_limit_pass_run(struct log_limit_pass *r)
{
    CLEANUP(close_fd) int top = open(r->log_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    r->files_cut = r->jobs_removed = 0;
    r->problem.code = ERR_OK;
    if (top < 0)
        return; /* no job has run here yet */
    usage_measure_all(r, top);
    for (size_t i = 0; r->per_job && i < r->count; i++)
        if (r->usage[i].bytes > r->per_job)
            job_cut(r, top, &r->usage[i], r->per_job);
    if (r->total)
        total_enforce(r, top);
}

void log_limit_pass_release(struct log_limit_pass *r)
{
    for (size_t i = 0; i < r->count; i++)
        free(r->usage[i].name);
    free(r->usage);
    r->usage = NULL;
    r->count = r->cap = 0;
}
