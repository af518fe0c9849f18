#ifndef DDP_CLIENT_RUN_LOG_TAIL_H
#define DDP_CLIENT_RUN_LOG_TAIL_H

#include "client/text/prefix.h"

/* Reads the workers' log files of this machine as they grow:
 *   <logs>/<job>/generation_<N>/<node>/<local rank>/stdout.log and stderr.log
 * A file that does not exist yet is tried again with each read. One thread. */
struct log_tail_file {
    int rank, local_rank, fd; /* -1: not open yet */
    int64_t at;               /* offset of the next byte to read */
    bool standard_error;
};
struct log_tail {
    char *dir; /* of the generation's node */
    struct log_tail_file *files;
    size_t count, cap;
    struct prefixer out, err; /* of what goes to stdout and stderr */
};

void log_tail_init(struct log_tail *t);
/* Switches to a generation, of which no files are added yet. The files of the one before must have been read
 * to their end. */
void log_tail_open(struct log_tail *t, const char *logs, int64_t job, int64_t generation, const char *node);
/* Adds a file of the generation. label: text before each of its lines (prefix.h), or NULL. */
void log_tail_add(struct log_tail *t, int rank, int local_rank, bool standard_error, const char *label);
/* Appends what is new; true when there was something. */
bool log_tail_read(struct log_tail *t, struct buf *out, struct buf *err);
void log_tail_finish(struct log_tail *t, struct buf *out, struct buf *err); /* appends unfinished lines */
void log_tail_release(struct log_tail *t);

#endif
