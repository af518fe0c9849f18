#ifndef DDP_DAEMON_SUPERVISOR_LOG_TIMES_H
#define DDP_DAEMON_SUPERVISOR_LOG_TIMES_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/supervisor/log_watch.h"
#include "daemon/supervisor/protocol/log_place.h"

/* Notes in times.log when a worker's stdout.log and stderr.log grow (protocol/log_note.h). The worker writes to
 * these files itself, so the supervisor learns of it by inotify (log_watch.h). If both files have grown since the
 * last note, their order is that of the first write to each. The notes of a worker that writes little are made at
 * once. A worker that writes all the time gets a note every few milliseconds, and half as often after every
 * LOG_TIMES_DOUBLE notes, so that times.log stays small. Without inotify or times.log there are none, and `ddpctl
 * logs` goes by the files' times. */

#define LOG_TIMES_PAUSE_MS 5
#define LOG_TIMES_AT_ONCE 50    /* notes of one burst that are made without a pause */
#define LOG_TIMES_DOUBLE 65536  /* notes, 1 MiB of times.log */
#define LOG_TIMES_MOST_MS 10000 /* the longest pause */

struct log_times {
    struct log_files files;  /* -1: no notes are made */
    struct log_watch *watch; /* borrowed; NULL: no notes are made */
    bool grown[2]; /* files that have grown and are not watched at present, in this order; true: stderr.log */
    int grown_count;
    int64_t noted[2]; /* sizes in the last notes */
    int64_t count;    /* notes in times.log */
    /* CLOCK_BOOTTIME; each note adds a pause to it. While it is far ahead of now, no notes are made */
    int64_t paid_ms;
};

void log_times_init(struct log_times *t);
/* Takes the descriptors. What the worker has written since the files were opened gets a note, earlier content gets none. t
 * must keep its address until log_times_end. */
void log_times_begin(struct log_times *t, struct log_watch *watch, struct log_files *files);
/* The supervisor's watch has events: makes the notes of all its workers that need not pause. */
void log_times_hear(struct log_watch *watch, int64_t now);
/* Makes the notes whose pause is over. Returns when it must be called again; INT64_MAX: not before log_times_hear. */
int64_t log_times_tick(struct log_times *t, int64_t now);
/* Makes the last notes and closes everything. */
void log_times_end(struct log_times *t, int64_t now);

#endif
