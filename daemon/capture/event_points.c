#include "daemon/capture/event_points.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/event_file/event_read.h"
#include "base/mem.h"
#include "daemon/capture/number.h"

#define OLD_MS                                                                                               \
    60000 /* a file that nobody has written to since this time before the start belongs to an earlier run */

static bool file_is_known(const struct event_points *p, const char *path)
{
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->files[i].path, path) == 0)
            return true;
    return false;
}

static void file_add(struct event_points *p, const char *path)
{
    struct stat st;

    if (file_is_known(p, path))
        return;
    /* O_NONBLOCK: a FIFO must not hold this process up */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) ||
        (int64_t)st.st_mtim.tv_sec * 1000 < p->started_ms - OLD_MS) {
        close_fd(&fd);
        return;
    }
    if (p->count == EVENT_FILES_MOST) {
        close(fd);
        point_note(p->writer, "capture: %s has more than %d event files; the others are not read", p->dir,
                   EVENT_FILES_MOST);
        return;
    }
    p->files[p->count++] = (struct event_source){.path = xstrdup(path), .fd = fd};
}

static void directory_close(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

static void directory_scan(struct event_points *p, const char *path, int depth)
{
    CLEANUP(directory_close) DIR *dir = opendir(path);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        CLEANUP(free_text) char *below = xasprintf("%s/%s", path, entry->d_name);

        if (entry->d_name[0] == '.')
            continue;
        if (strstr(entry->d_name, "tfevents"))
            file_add(p, below);
        else if (depth < EVENT_DEPTH_MOST && (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN))
            directory_scan(p, below, depth + 1);
    }
}

void event_points_scan(struct event_points *p)
{
    directory_scan(p, p->dir, 0);
}

static void scalar_take(void *ctx, const struct event_scalar *s)
{
    struct event_points *p = ctx;
    struct metric_line line = {.has_step = true, .step = s->step};
    char name[METRIC_NAME];

    if (s->wall_s * 1000 < (double)p->started_ms) /* of an earlier run */
        return;
    if (!number_name(s->tag, strlen(s->tag), name)) {
        point_note(
            p->writer,
            "capture: the tag '%.60s' is left out: expected at most %d ASCII characters without spaces",
            s->tag, METRIC_NAME - 1);
        return;
    }
    metric_line_add(&line, name, s->value);
    (void)point_put(p->writer, &line, p->now_ms);
}

/* Takes the whole records; returns the bytes that they have. */
static uint64_t records_take(struct event_points *p, struct event_source *f)
{
    const uint8_t *at = (const uint8_t *)p->bytes.data;
    size_t left = p->bytes.len;
    uint64_t taken = 0;

    for (;;) {
        struct event_record r;
        enum event_piece piece = event_record_next(at, left, &r);

        if (piece == EVENT_MORE || (p->waits && !point_has_room(p->writer, p->now_ms)))
            return taken;
        if (piece == EVENT_DAMAGED || (piece == EVENT_DATA && !event_scalars(r.data, r.len, scalar_take, p)))
            f->damaged++;
        taken += r.size;
        if (r.size >= left) /* a long record is passed over without reading it */
            return taken;
        at += r.size;
        left -= r.size;
    }
}

static size_t file_follow(struct event_points *p, struct event_source *f, size_t limit)
{
    struct stat st;
    ssize_t n;

    if (fstat(f->fd, &st) || st.st_size <= (off_t)f->at)
        return 0;
    p->waits = !p->writer->ends && st.st_size - (off_t)f->at <= EVENT_BACKLOG;
    if (p->waits && !point_has_room(p->writer, p->now_ms))
        return 0;
    buf_clear(&p->bytes);
    buf_reserve(&p->bytes, limit);
    n = pread(f->fd, p->bytes.data, limit, (off_t)f->at);
    if (n <= 0)
        return 0;
    p->bytes.len = (size_t)n;
    const uint64_t taken = records_take(p, f);
    f->at += taken;
    return taken < (uint64_t)n ? (size_t)taken : (size_t)n;
}

size_t event_points_read(struct event_points *p, size_t limit, int64_t now_ms)
{
    size_t read = 0;

    p->now_ms = now_ms;
    for (int i = 0; i < p->count; i++)
        read += file_follow(p, &p->files[i], limit);
    return read;
}

void event_points_end(struct event_points *p)
{
    struct stat st;

    for (int i = 0; i < p->count; i++) {
        const struct event_source *f = &p->files[i];

        if (f->damaged)
            point_note(p->writer, "capture: %s: %lld damaged records are left out", f->path,
                       (long long)f->damaged);
        if (!fstat(f->fd, &st) && (uint64_t)st.st_size > f->at)
            point_note(p->writer, "capture: %s ends within a record", f->path);
    }
    if (!p->count)
        point_note(p->writer, "capture: the program has written no event files to %s", p->dir);
}

void event_points_release(struct event_points *p)
{
    for (int i = 0; i < p->count; i++) {
        close_fd(&p->files[i].fd);
        free(p->files[i].path);
    }
    buf_release(&p->bytes);
}
