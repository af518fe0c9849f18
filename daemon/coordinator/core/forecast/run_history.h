#ifndef DDP_DAEMON_COORDINATOR_CORE_FORECAST_RUN_HISTORY_H
#define DDP_DAEMON_COORDINATOR_CORE_FORECAST_RUN_HISTORY_H

#include "daemon/coordinator/core/model.h"

/* How long earlier jobs have run, for jobs of which nothing else tells when they end. Borrows names from the core's
 * jobs: collect, ask and release it in one call of the core. */
struct run_history {
    struct run_history_entry *by_user, *by_name; /* sorted: user, name, newest first; name, newest first */
    size_t count;
};

void run_history_collect(struct run_history *history, const struct core *core);
/* How long a job of this user and name, which has run for elapsed_ms, will still run: from the newest jobs of the same user and
 * name, else of the same name. -1: there are none. */
int64_t run_history_left(const struct run_history *history, const char *user, const char *name,
                         int64_t elapsed_ms);
void run_history_release(struct run_history *history); /* also for CLEANUP */

#endif
