#ifndef DDP_CLIENT_RUN_WAITING_H
#define DDP_CLIENT_RUN_WAITING_H

#include <stdbool.h>
#include <stdint.h>

/* Decides when `ddpctl run` prints what its job waits for, before the first generation or between two. A
 * reason is printed once it has held for a second, so that waits which end by themselves are not printed.
 * Times are boot ms. No clock, no output. */
struct waiting {
    int64_t since_ms;        /* since when the job has waited, 0: it does not wait */
    int64_t reason_since_ms; /* since when it has waited for this reason */
    bool said;               /* this reason was printed */
    char reason[256];
};

/* Called each turn with the job's state and reason. True: print w->reason now. */
bool waiting_turn(struct waiting *w, const char *state, const char *reason, int64_t now_ms);

#endif
