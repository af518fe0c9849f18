#ifndef DDP_DAEMON_COORDINATOR_CORE_CLOCK_DOUBT_H
#define DDP_DAEMON_COORDINATOR_CORE_CLOCK_DOUBT_H

#include <stdbool.h>

#include "daemon/coordinator/core/model.h"

/* Whether the wall clock may decide that something is old. A machine whose clock is wrong after a boot, or is set ahead while it runs, would
 * make all ended jobs look old, and they would be removed for good before somebody corrects the clock.
 *
 * The core remembers the last wall time that it trusted, also across restarts. If the clock is ahead of it by more than a day, the ages are
 * held: no old records are removed for an hour. Then the clock counts as right, because a coordinator may have been off for long. A
 * restart in this hour begins a new one. Limits by number always apply. */
void clock_doubt_load(struct core *core, int64_t trusted_wall_ms); /* 0: not known */
void clock_doubt_check(struct core *core);                         /* about once a minute */
bool clock_doubt_holds(const struct core *core, struct core_now now);

#endif
