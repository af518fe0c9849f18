#include "daemon/supervisor/log_times.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/supervisor/protocol/log_note.h"

#define READS_AT_ONCE 16
#define INSTANCES_MOST 32 /* of inotify; a user has 128, and root shares these with the system */

/* Of this process. To close an instance that has watches takes the kernel 10 to 20 ms, in which the supervisor would do nothing
 * else, and a restart waits for the ends of all ranks. So an instance without watches is kept for the next worker. */
static int instances;
static int idle[INSTANCES_MOST];
static int idle_count;

void log_times_init(struct log_times *t)
{
    *t = (struct log_times){.files = LOG_FILES_NONE, .watch = -1};
}

static int instance_take(void)
{
    char old[4096];
    int watch;

    if (idle_count) {
        watch = idle[--idle_count];
        while (read(watch, old, sizeof(old)) > 0) /* events of its last worker */
            ;
        return watch;
    }
    if (instances >= INSTANCES_MOST)
        return -1;
    watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watch < 0)
        log_warn("log_times_off", "why=%s", LOG_Q(strerror(errno)));
    else
        instances++;
    return watch;
}

static void instance_give_back(const struct log_times *t)
{
    for (int i = 0; i < 2; i++)
        if (t->watches[i] >= 0)
            (void)inotify_rm_watch(t->watch, t->watches[i]);
    idle[idle_count++] = t->watch;
}

static void log_times_close(struct log_times *t)
{
    if (t->watch >= 0)
        instance_give_back(t);
    log_files_close(&t->files);
    log_times_init(t);
}

static int64_t file_size(int fd)
{
    struct stat st;

    return fstat(fd, &st) ? 0 : st.st_size;
}

static int watch_file(int watch, int fd)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return inotify_add_watch(watch, path, IN_MODIFY);
}

void log_times_begin(struct log_times *t, struct log_files *files)
{
    t->files = *files;
    *files = LOG_FILES_NONE;
    t->watch = t->files.times < 0 ? -1 : instance_take();
    if (t->watch < 0) {
        log_times_close(t);
        return;
    }
    t->watches[0] = watch_file(t->watch, t->files.out);
    t->watches[1] = watch_file(t->watch, t->files.err);
    if (t->watches[0] < 0 || t->watches[1] < 0) {
        log_warn("log_times_off", "why=%s", LOG_Q(strerror(errno)));
        log_times_close(t);
        return;
    }
    t->noted[0] = file_size(t->files.out);
    t->noted[1] = file_size(t->files.err);
    t->count = file_size(t->files.times) / LOG_NOTE_SIZE;
}

static int64_t pause_ms(const struct log_times *t)
{
    const int64_t doubled = t->count / LOG_TIMES_DOUBLE;
    const int64_t pause = doubled > 20 ? LOG_TIMES_MOST_MS : (int64_t)LOG_TIMES_PAUSE_MS << doubled;

    return pause < LOG_TIMES_MOST_MS ? pause : LOG_TIMES_MOST_MS;
}

int64_t log_times_due(const struct log_times *t, int64_t now)
{
    const int64_t from = t->paid_ms - LOG_TIMES_AT_ONCE * pause_ms(t);

    return t->watch < 0 || from <= now ? INT64_MAX : from;
}

int log_times_descriptor(const struct log_times *t, int64_t now)
{
    return log_times_due(t, now) == INT64_MAX ? t->watch : -1;
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
    if (fd_write_all(t->files.times, bytes, sizeof(bytes), &e) == ERR_OK)
        return;
    /* Part of a note would make the later ones unreadable. */
    log_warn("log_times_off", "why=%s", LOG_Q(e.msg));
    log_times_close(t);
}

/* Which files have grown, in the order of the first write to each since the events were last read. Returns how many. */
static int read_events(const struct log_times *t, bool grown[2])
{
    char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    int count = 0;
    ssize_t n;

    /* A worker that writes without end makes events as fast as they are read. */
    for (int turn = 0; turn < READS_AT_ONCE && (n = read(t->watch, events, sizeof(events))) > 0; turn++)
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *event = (const void *)(events + at);
            const bool standard_error = event->wd == t->watches[1];

            if (event->mask & IN_Q_OVERFLOW) { /* events were lost: any file may have grown */
                grown[0] = false;
                grown[1] = true;
                count = 2;
            } else if (!count || (count == 1 && grown[0] != standard_error)) {
                grown[count++] = standard_error;
            }
            at += (ssize_t)(sizeof(*event) + event->len);
        }
    return count;
}

void log_times_take(struct log_times *t, int64_t now)
{
    bool grown[2];
    const int count = t->watch < 0 ? 0 : read_events(t, grown);

    for (int i = 0; i < count && t->watch >= 0; i++)
        note_growth(t, grown[i]);
    t->paid_ms = (t->paid_ms > now ? t->paid_ms : now) + pause_ms(t);
}

void log_times_end(struct log_times *t, int64_t now)
{
    log_times_take(t, now);
    for (int i = 0; i < 2 && t->watch >= 0; i++) /* what is left behind READS_AT_ONCE */
        note_growth(t, i);
    log_times_close(t);
}
