#ifndef DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELL_QUEUE_H
#define DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELL_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/coordinator/service/tell/tell_attempt.h"

/* The notices of one hook, as far as their delivery is decided: which one is due, when the next try is, and when one is
 * given up. Without a clock, a database or a loop. Times are boot ms, except where noted. */
#define TELL_FIRST_RETRY_MS 1000
#define TELL_LONGEST_RETRY_MS (5 * 60 * 1000)
#define TELL_REFUSALS_MOST 8 /* a notice that was refused so often is dropped */

struct tell_queue {
    char *hook;
    const struct hook *config; /* NULL: the `tell` of a job */
    int64_t waiting;           /* in the database with an id above last_id */
    int64_t last_id;           /* delivered or dropped up to this one */
    int64_t deleted_id;        /* and deleted up to this one */
    int64_t sent_id;           /* the one that is being delivered; 0: none */
    int64_t next_at;           /* not before */
    int failures, refusals;    /* in a row; of the present notice */
    int64_t ok_ms, error_ms;   /* wall; 0: never */
    char *error;
    uint64_t delivered, failed, dropped;
    bool drop_said; /* an event says that notices were dropped, and none was delivered since */
    struct tell_attempt *attempt;
};

bool tell_queue_due(const struct tell_queue *q, int64_t now);
/* The queue whose turn it is: first those without a failure, so that queues that fail do not delay the others, and among them
 * the one that is due for the longest time. NULL: none is due. */
struct tell_queue *tell_queue_first(struct tell_queue *const *queues, size_t count, int64_t now);
/* What the attempt with sent_id came to. Returns true if the notice is dropped because it was refused too often. */
bool tell_queue_done(struct tell_queue *q, const struct tell_result *r, int64_t now, int64_t wall_ms);
/* Time until the next try after so many failures in a row. */
int64_t tell_queue_wait(int failures);
void tell_queue_release(struct tell_queue *q);

#endif
