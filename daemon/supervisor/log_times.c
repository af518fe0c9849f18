#include "daemon/supervisor/log_times.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/supervisor/protocol/log_note.h"

void log_times_init(struct log_times *t)
{
    *t = (struct log_times){.files = LOG_FILES_NONE};
}

static void log_times_close(struct log_times *t)
{
    if (t->watch)
        log_watch_drop(t->watch, t);
    log_files_close(&t->files);
    log_times_init(t);
}

/* Ends the notes: after a gap, later notes would give wrong times. */
static void log_times_give_up(struct log_times *t, const char *why)
{
    log_warn("log_times_off", "why=%s", LOG_Q(why));
    log_times_close(t);
}

static int64_t file_size(int fd)
{
    struct stat st;

    return fstat(fd, &st) ? 0 : st.st_size;
}

static bool log_times_watch(struct log_times *t, bool standard_error)
{
    if (log_watch_add(t->watch, standard_error ? t->files.err : t->files.out, t, standard_error))
        return true;
    log_times_give_up(t, strerror(errno));
    return false;
}

static void note_growth(struct log_times *t, bool standard_error)
{
    const int64_t size = file_size(standard_error ? t->files.err : t->files.out);
    const struct log_note note = {clock_wall_us(), size, standard_error};
    uint8_t bytes[LOG_NOTE_SIZE];
    struct err e;

    if (size == t->noted[standard_error])
        return;
    t->noted[standard_error] = size; /* smaller if the program has truncated its log */
    log_note_encode(&note, bytes);
    t->count++;
    if (fd_write_all(t->files.times, bytes, sizeof(bytes),
                     &e)) /* part of a note would make the later ones unreadable */
        log_times_give_up(t, e.msg);
}

void log_times_begin(struct log_times *t, struct log_watch *watch, struct log_files *files)
{
    log_times_init(t);
    t->files = *files;
    *files = LOG_FILES_NONE;
    if (t->files.times < 0 || watch->fd < 0) {
        log_times_close(t);
        return;
    }
    t->watch = watch;
    t->noted[0] = t->files.sizes[0];
    t->noted[1] = t->files.sizes[1];
    t->count = file_size(t->files.times) / LOG_NOTE_SIZE;
    if (!log_times_watch(t, false) || !log_times_watch(t, true))
        return;
    /* The worker may have written before its files were watched. */
    for (int i = 0; i < 2 && t->watch; i++)
        note_growth(t, i);
}

static int64_t pause_ms(const struct log_times *t)
{
    const int64_t doubled = t->count / LOG_TIMES_DOUBLE;
    const int64_t pause = doubled > 20 ? LOG_TIMES_MOST_MS : (int64_t)LOG_TIMES_PAUSE_MS << doubled;

    return pause < LOG_TIMES_MOST_MS ? pause : LOG_TIMES_MOST_MS;
}

int64_t log_times_tick(struct log_times *t, int64_t now)
{
    const int64_t from = t->paid_ms - LOG_TIMES_AT_ONCE * pause_ms(t);

    if (!t->grown_count)
        return INT64_MAX;
    if (from > now)
        return from;
    const int count = t->grown_count;
    t->grown_count = 0;
    t->paid_ms = (t->paid_ms > now ? t->paid_ms : now) + pause_ms(t);
    /* Watches first, then reads the size: output in between is counted in the note, and also causes another event. */
    for (int i = 0; i < count && t->watch && log_times_watch(t, t->grown[i]); i++)
        note_growth(t, t->grown[i]);
    return INT64_MAX;
}

static void log_times_grew(void *owner, bool standard_error, void *user)
{
    struct log_times *t = owner;
    const int64_t *now = user;

    if (t->watch && t->grown_count < 2)
        t->grown[t->grown_count++] = standard_error;
    (void)log_times_tick(t, *now);
}

void log_times_hear(struct log_watch *watch, int64_t now)
{
    log_watch_hear(watch, log_times_grew, &now);
}

void log_times_end(struct log_times *t, int64_t now)
{
    if (t->watch)
        log_times_hear(t->watch, now);
    for (int i = 0; i < t->grown_count && t->watch; i++)
        note_growth(t, t->grown[i]);
    for (int i = 0; i < 2 && t->watch; i++) /* output since the last note, or whose event was not read yet */
        note_growth(t, i);
    log_times_close(t);
}
