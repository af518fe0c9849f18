#ifndef DDP_CLIENT_RUN_LOG_TAIL_H
#define DDP_CLIENT_RUN_LOG_TAIL_H

#include "client/text/output_merge.h"

/* Reads the workers' log files of this machine as they grow:
 *   <logs>/<job>/generation_<N>/<node>/<local rank>/stdout.log and stderr.log
 * N and the local rank are those that the worker was started for: it may go on in later generations, and then its
 * files are read on from where they were. A file that does not exist yet is tried again with each read. One thread. */
struct log_tail_place {
    int64_t generation;
    int local_rank;
};
struct log_tail_file {
    int rank, fd; /* fd -1: not open yet */
    struct log_tail_place place;
    int64_t at; /* offset of the next byte to read */
    bool standard_error;
};
struct log_tail_files {
    struct log_tail_file *items;
    size_t count, cap;
};
struct log_tail {
    char *base, *node; /* <logs>/<job> */
    char *dir;         /* of the generation's node */
    struct log_tail_files files;
    struct log_tail_files
        former;  /* of the last generation, as far as this one has not taken them over; until the next read */
    bool warned; /* that a file could not be opened */
    struct output_merge merge; /* the output; the caller writes the texts of its targets */
};

void log_tail_init(struct log_tail *t);
/* Switches to a generation, of which no files are added yet. The files of the one before must have been read
 * to their end; those that are added again before the next read go on. */
void log_tail_open(struct log_tail *t, const char *logs, int64_t job, int64_t generation, const char *node);
/* Adds a file of the generation. label: text before each of its lines (output_merge.h), or NULL. */
void log_tail_add(struct log_tail *t, int rank, struct log_tail_place place, bool standard_error,
                  const char *label);
/* Merges what is new. A file that exists and cannot be opened is reported once, as a line of the output. True when there was something, or when a file was not read because its rank waits for the
 * end of another rank's line. */
bool log_tail_read(struct log_tail *t, int64_t now_ms);
void log_tail_release(struct log_tail *t);

#endif
