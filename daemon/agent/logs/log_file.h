#ifndef DDP_DAEMON_AGENT_LOGS_LOG_FILE_H
#define DDP_DAEMON_AGENT_LOGS_LOG_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

/* Opens the logs of a worker for reading. Their directory belongs to the job's user, so only plain files are opened. */
struct log_file_place {
    const char *log_dir, *node;
    int64_t job, first_generation;
    int first_local_rank; /* with first_generation: log_place.h */
    bool standard_error;
};

/* A log file, and times.log beside it where that is wanted and there is one. */
struct log_file {
    int fd, notes; /* -1: not open */
    struct stat st;
};

#define LOG_FILE_NONE ((struct log_file){.fd = -1, .notes = -1})

/* NOT_FOUND: there is no file yet, or it has been removed. */
MUST_CHECK enum err_code log_file_open(const struct log_file_place *place, bool notes, struct log_file *out,
                                       struct err *e);
void log_file_close(struct log_file *file); /* also for CLEANUP */

#endif
