#ifndef DDP_DAEMON_SUPERVISOR_LEASE_H
#define DDP_DAEMON_SUPERVISOR_LEASE_H

#include <stdbool.h>
#include <stdint.h>

/* How long a job's workers on this node may run without an answer from the coordinator. Times are milliseconds of
 * CLOCK_BOOTTIME. The supervisor counts from the time when the acknowledged heartbeat was sent, the coordinator from
 * the time when it received it: so the supervisor's lease ends first. SIGTERM is sent one grace period before the end,
 * but at most a sixth of the lease before it, so that no worker lives when the lease ends. */
struct lease {
    int64_t sent, length;
};

void lease_renew(struct lease *l, int64_t sent, int64_t length); /* an older heartbeat changes nothing */
bool lease_held(const struct lease *l);                          /* false: there never was one */
int64_t lease_term(const struct lease *l, int64_t grace);        /* when SIGTERM is due */
int64_t lease_end(const struct lease *l);

#endif
