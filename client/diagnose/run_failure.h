#ifndef DDP_CLIENT_DIAGNOSE_RUN_FAILURE_H
#define DDP_CLIENT_DIAGNOSE_RUN_FAILURE_H

#include "client/run/run_error.h"

/* What is said of a failed run beyond its first line ("rank 1 on box1 exited with code 3"): the rank's last
 * words where they were not seen alone, an error that came earlier in another rank, and what became of its
 * peers, which is a consequence and said to be one. */
void run_failure_print(const Ddp__V1__JobStatus *job, bool last_words, const struct run_error *first,
                       struct buf *out);

#endif
