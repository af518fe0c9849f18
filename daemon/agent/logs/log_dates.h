#ifndef DDP_DAEMON_AGENT_LOGS_LOG_DATES_H
#define DDP_DAEMON_AGENT_LOGS_LOG_DATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "daemon/supervisor/protocol/log_note.h"

/* When the bytes of a log were written, by the notes beside it (log_note.h). The notes belong to the job's user: any
 * content is possible, and gives wrong times at worst. Reading them holds up the agent's other work, so no call examines
 * more than LOG_NOTES_MOST, and the first impossible note ends them. */
#define LOG_NOTES_END INT64_MAX
#define LOG_NOTES_MOST (1 << 20) /* 16 MiB of notes; more is not made in years (log_times.h) */

/* Runs of bytes that were written by one time, in order. */
struct log_runs {
    int64_t *bytes, *wall_us;
    size_t count, cap;
};

/* Sets the runs of the bytes from `begin` to before `end`. notes: -1 if there are none; *notes_at: where to begin in
 * them, 0 at first, moved on for later bytes of the same log; LOG_NOTES_END: there are no more. What has no note is dated by the log's last change. */
void log_runs_find(struct log_runs *runs, int notes, int64_t *notes_at, bool standard_error,
                   const struct stat *log, int64_t begin, int64_t end);
void log_runs_add(struct log_runs *runs, int64_t bytes, int64_t wall_us); /* at the end */
void log_runs_release(struct log_runs *runs);

/* The offset of the first byte that was written at this time or later. */
int64_t log_offset_since(int notes, bool standard_error, const struct stat *log, int64_t wall_us);

#endif
