#ifndef DDP_DAEMON_SUPERVISOR_LEASE_H
#define DDP_DAEMON_SUPERVISOR_LEASE_H

#include <stdbool.h>
#include <stdint.h>

/* How long a job's workers on this node may run without word from the coordinator. Milliseconds of
 * CLOCK_BOOTTIME. The holder counts from when it sent the heartbeat that was acknowledged, the coordinator
 * from when it received it: the holder's lease ends first. SIGTERM comes a grace earlier than the end (a
 * sixth of the lease at most), so that at the end nothing lives any more. */
struct lease {
    int64_t sent, length;
};

void lease_renew(struct lease *l, int64_t sent, int64_t length); /* an older heartbeat changes nothing */
bool lease_held(const struct lease *l);                          /* was there ever one */
int64_t lease_term(const struct lease *l, int64_t grace);        /* when to ask the workers to end */
int64_t lease_end(const struct lease *l);

#endif
