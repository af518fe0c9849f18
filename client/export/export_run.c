#include "client/export/export_run.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/event_file/event_write.h"
#include "base/file.h"
#include "base/mem.h"

#define FILE_NAME "events.out.tfevents.ddp" /* TensorBoard reads every file with "tfevents" in its name */
#define WRITE_BYTES (64 << 10)

/* "9-gpt_small": a job's name may hold anything. */
static char *run_name(int64_t job, const char *name)
{
    char *text = xasprintf(*name ? "%lld-%.80s" : "%lld%s", (long long)job, name);

    for (char *c = text; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
            *c = '_';
    return text;
}

enum err_code export_run_open(struct export_run *run, const char *dir, int64_t job, const char *name,
                              struct err *e)
{
    CLEANUP(free_text) char *below = run_name(job, name);

    *run = (struct export_run){.fd = -1};
    if (file_mkdirs(dir, 0777, e))
        return e->code;
    if (access(dir, W_OK | X_OK))
        return err_sys(e, errno, "%s", dir);
    run->dir = xasprintf("%s/%s", dir, below);
    run->path = xasprintf("%s/" FILE_NAME, run->dir);
    return ERR_OK;
}

static enum err_code run_create(struct export_run *run, struct err *e)
{
    if (file_mkdirs(run->dir, 0777, e))
        return e->code;
    int fd = open(run->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_sys(e, errno, "%s", run->path);
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        close(fd);
        return err_set(e, ERR_FAILED_PRECONDITION, "%s: another export is writing this file", run->path);
    }
    if (ftruncate(fd, 0)) {
        close(fd);
        return err_sys(e, errno, "%s", run->path);
    }
    run->fd = fd;
    return ERR_OK;
}

static enum err_code run_write(struct export_run *run, struct err *e)
{
    enum err_code code = fd_write_all(run->fd, run->records.data, run->records.len, e);

    if (code) {
        (void)!ftruncate(run->fd, run->size);
        (void)lseek(run->fd, run->size, SEEK_SET);
        err_wrap(e, "%s", run->path);
    } else {
        run->size += (int64_t)run->records.len;
    }
    buf_clear(&run->records);
    return code;
}

static char *series_tag(const struct export_series *s)
{
    return s->rank ? xasprintf("%s/rank %d", s->name, s->rank) : xstrdup(s->name);
}

/* The clock is the points' own, so that an export gives the same file whenever it is made. */
static double point_wall_s(const struct export_point *p)
{
    return (double)p->time_ms / 1000;
}

enum err_code export_run_put(struct export_run *run, const struct export_points *points, struct err *e)
{
    if (!points->count)
        return ERR_OK;
    if (run->fd < 0) {
        if (run_create(run, e))
            return e->code;
        event_put_version(&run->records, point_wall_s(&points->points[0]));
    }
    for (size_t i = 0; i < points->count; i++) {
        const struct export_point *p = &points->points[i];
        CLEANUP(free_text) char *tag = series_tag(p->series);

        event_put_scalar(&run->records, point_wall_s(p), p->step, tag, p->value);
        if (run->records.len >= WRITE_BYTES && run_write(run, e))
            return e->code;
    }
    return run->records.len ? run_write(run, e) : ERR_OK;
}

void export_run_close(struct export_run *run)
{
    if (!run->path)
        return;
    close_fd(&run->fd);
    free(run->dir);
    free(run->path);
    buf_release(&run->records);
    *run = (struct export_run){.fd = -1};
}
