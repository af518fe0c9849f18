#ifndef DDP_DAEMON_SUPERVISOR_LOG_TIMES_H
#define DDP_DAEMON_SUPERVISOR_LOG_TIMES_H

#include <stdint.h>

#include "daemon/supervisor/protocol/log_place.h"

/* Notes in times.log when a worker's stdout.log and stderr.log grow (protocol/log_note.h). The worker writes to
 * these files itself, so the supervisor learns of it by inotify. If both files have grown since the last note,
 * their order is unknown. So the notes of a worker that writes little are made at once. A worker that writes without end
 * gets a note every few milliseconds, and after every LOG_TIMES_DOUBLE notes half as often: times.log stays small.
 * Of a job's ranks on a node the first 32 have notes. Without inotify or times.log there are none, and `ddpctl logs` goes by the files' times. */

#define LOG_TIMES_PAUSE_MS 5
#define LOG_TIMES_AT_ONCE 50    /* notes of one burst that are made without a pause */
#define LOG_TIMES_DOUBLE 65536  /* notes, 1 MiB of times.log */
#define LOG_TIMES_MOST_MS 10000 /* the longest pause */

struct log_times {
    struct log_files files; /* -1: no notes are made */
    int watch;              /* inotify; readable: a file has grown */
    int watches[2];         /* its numbers for stdout.log, stderr.log */
    int64_t noted[2];       /* sizes in the last notes */
    int64_t count;          /* notes in times.log */
    int64_t paid_ms;        /* CLOCK_BOOTTIME; each note adds a pause. Far ahead of now: no note at present */
};

void log_times_init(struct log_times *t);
/* Takes the descriptors. What the files hold already gets no note. */
void log_times_begin(struct log_times *t, struct log_files *files);
/* The descriptor to wait for; -1: none until log_times_due. */
int log_times_descriptor(const struct log_times *t, int64_t now);
int64_t log_times_due(const struct log_times *t, int64_t now); /* INT64_MAX: only by the descriptor */
void log_times_take(struct log_times *t, int64_t now);         /* makes the notes that are missing */
/* Makes the last notes and closes everything. */
void log_times_end(struct log_times *t, int64_t now);

#endif
