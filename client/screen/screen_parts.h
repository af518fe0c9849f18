#ifndef DDP_CLIENT_SCREEN_SCREEN_PARTS_H
#define DDP_CLIENT_SCREEN_SCREEN_PARTS_H

#include "client/text/term.h"
#include "proto/ddp.pb-c.h"

/* Pieces of text that several screens show. No file of this folder reads a clock or does input or output, so
 * that tests can compare screens with files. */
void screen_speed(const Ddp__V1__JobStatus *job, struct buf *out);      /* "21.4k tok/s", or nothing */
void screen_validation(const Ddp__V1__JobStatus *job, struct buf *out); /* "1.46", "89.1 %", or nothing */
void screen_reason(const Ddp__V1__JobStatus *job, struct buf *out);     /* ": waits for 4 GPUs", or nothing */
void screen_place(const Ddp__V1__JobStatus *job, struct buf *out);      /* "box1 (2), box2 (2)" */
/* True for a node that is alive or suspect. In another state it has no free slots, and its last load and memory say nothing
 * about it now. */
bool screen_node_is_usable(const Ddp__V1__NodeStatus *node);
/* "rank 2 on box1 killed by signal 9 (SIGKILL), out of memory: message", then the last five lines on stderr of it and of the
 * other ranks that failed by themselves, with "  | " before each. probe: as for failed_ranks_find. */
void screen_failure(const Ddp__V1__JobStatus *job, const Ddp__V1__ProbeJobReply *probe,
                    const struct term *term, struct buf *out);
/* The first line of it. whole: with the message of the error file even if the rank's last line on stderr says the same. */
void screen_failure_line(const Ddp__V1__Failure *failure, bool whole, struct buf *out);
/* True if the job failed because a rank's program did not start. Then there is no output to show. */
bool screen_could_not_start(const Ddp__V1__JobStatus *job);
/* True if the job's reason only says what screen_failure says with more words. */
bool screen_reason_is_failure(const Ddp__V1__JobStatus *job);
/* "3 of 4 ranks: rank 2 on box3 is being replaced"; nothing if no rank is missing. */
void screen_presence(const Ddp__V1__JobStatus *job, struct buf *out);
void screen_not_restarted(const Ddp__V1__JobStatus *job, const char *label, struct buf *out);
/* The commands to type after a job has failed, one on each line, with three blanks before each. */
void screen_next(const Ddp__V1__JobStatus *job, struct buf *out);

#endif
