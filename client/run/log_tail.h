#ifndef DDP_CLIENT_RUN_LOG_TAIL_H
#define DDP_CLIENT_RUN_LOG_TAIL_H

#include "client/screen/prefix.h"

/* The workers' log files of this machine as they grow: <logs>/<job>/generation_<N>/<node>/<local
 * rank>/stdout.log and stderr.log. Files that are not there yet are looked for each time. */
struct log_tail_file {
    int rank, local_rank, fd; /* -1: not open yet */
    int64_t at;               /* the next byte */
    bool standard_error;
};
struct log_tail {
    char *dir; /* of the generation's node */
    struct log_tail_file *files;
    size_t count, cap;
    struct prefixer out, err; /* towards stdout and stderr */
};

void log_tail_init(struct log_tail *t);
/* Goes over to a generation's files, none of them yet; what is left of the former ones must have been read.
 */
void log_tail_open(struct log_tail *t, const char *logs, int64_t job, int64_t generation, const char *node);
/* label: in front of each line (prefix.h), or NULL. */
void log_tail_add(struct log_tail *t, int rank, int local_rank, bool standard_error, const char *label);
/* Appends what is new; true when there was something. */
bool log_tail_read(struct log_tail *t, struct buf *out, struct buf *err);
void log_tail_finish(struct log_tail *t, struct buf *out, struct buf *err); /* unfinished lines too */
void log_tail_release(struct log_tail *t);

#endif
