#ifndef DDP_CLIENT_RUN_RUN_FAILURE_H
#define DDP_CLIENT_RUN_RUN_FAILURE_H

#include "client/run/run_error.h"

/* Prints what else is known about a failed run after its first line ("rank 1 on box1 exited with code 3"):
 * the rank's last lines on stderr, if the output of other ranks was printed between; an earlier error of
 * another rank; and how its peers ended, marked as a consequence. last_words: print the lines of stderr. */
void run_failure_print(const Ddp__V1__JobStatus *job, bool last_words, const struct run_error *first,
                       struct buf *out);

#endif
