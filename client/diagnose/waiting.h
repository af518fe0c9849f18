#ifndef DDP_CLIENT_DIAGNOSE_WAITING_H
#define DDP_CLIENT_DIAGNOSE_WAITING_H

#include <stdbool.h>
#include <stdint.h>

/* What a job of `ddpctl run` waits for while it does not run, before its first generation or between two: a
 * reason is said once when it has held for a second, so that what passes by itself is not. Times are boot ms.
 */
struct waiting {
    int64_t since_ms; /* the job has waited, 0: it does not wait */
    int64_t held_ms;  /* since when for this reason */
    bool said;
    char reason[256];
};

/* Each turn, with the job's state and reason as they are. True: w->reason is to be said now. */
bool waiting_turn(struct waiting *w, const char *state, const char *reason, int64_t now_ms);

#endif
