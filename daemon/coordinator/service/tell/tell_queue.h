#ifndef DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELL_QUEUE_H
#define DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELL_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/coordinator/service/tell/tell_attempt.h"

/* The queue of one hook decides which notice is due, when the next attempt is, and when a notice is dropped. It uses no
 * clock, database or loop. Times are boot ms, except where noted. */
#define TELL_FIRST_RETRY_MS 1000
#define TELL_LONGEST_RETRY_MS (5 * 60 * 1000)
#define TELL_REFUSALS_MOST 8 /* a notice that was refused this often is dropped */

struct tell_queue {
    char *hook;
    const struct hook *config; /* NULL: the `tell` of a job */
    int64_t waiting;           /* number of notices in the database with an id above last_id */
    int64_t last_id;           /* notices up to this id were delivered or dropped */
    int64_t deleted_id;        /* notices up to this id were also deleted */
    int64_t sent_id;           /* the notice that is being delivered; 0: none */
    int64_t next_at;           /* the next attempt is not before this time */
    int failures, refusals;    /* failures in a row; refusals of the present notice */
    int64_t ok_ms, error_ms;   /* wall; 0: never */
    char *error;
    uint64_t delivered, failed, dropped;
    bool drop_said; /* an event has said that notices were dropped, and none was delivered since then */
    struct tell_attempt *attempt;
};

bool tell_queue_due(const struct tell_queue *q, int64_t now);
/* Returns the queue whose turn it is: the one that has been due for the longest time. A queue without a failure is due
 * since time 0, so queues that fail do not delay the others. NULL: none is due. */
struct tell_queue *tell_queue_first(struct tell_queue *const *queues, size_t count, int64_t now);
/* Records the outcome of the attempt with sent_id. Returns true if the notice is dropped because it was refused too
 * often. */
bool tell_queue_done(struct tell_queue *q, const struct tell_result *r, int64_t now, int64_t wall_ms);
/* Time until the next attempt after this many failures in a row. */
int64_t tell_queue_wait(int failures);
void tell_queue_release(struct tell_queue *q);

#endif
