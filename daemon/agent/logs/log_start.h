#ifndef DDP_DAEMON_AGENT_LOGS_LOG_START_H
#define DDP_DAEMON_AGENT_LOGS_LOG_START_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* Where a reader begins in a log: of the places that are given (not 0), the last one in the file. */
struct log_start {
    int64_t tail_bytes; /* before the end */
    int64_t tail_lines; /* before the end; a last line without an end counts */
    int64_t since_ms;   /* the first byte that was written at this time of the wall clock or later */
};

/* The search for the start of the last lines goes back this far: it holds up the agent's other work. */
#define LOG_START_SEARCH (8 << 20)

bool log_start_given(const struct log_start *start);
/* Returns an offset. notes: times.log (log_dates.h), -1 if there is none. */
int64_t log_start_find(const struct log_start *start, int fd, int notes, bool standard_error,
                       const struct stat *log);

#endif
