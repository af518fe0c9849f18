#ifndef DDP_DAEMON_COORDINATOR_CORE_FORECAST_FORECAST_H
#define DDP_DAEMON_COORDINATOR_CORE_FORECAST_FORECAST_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/coordinator/core/core.h"

/* When do the jobs in the queue start? Placement is run ahead on a copy of the core's state: the running jobs end one after the
 * other, when run_time.h says, and after each end a placement pass places what it would place then. The core is not changed.
 *
 * Its owner calls forecast_step as often as it has time for, and may read answers at any time: a job that was not reached yet
 * has no start. Steps are bounded (a forecast of a long queue ends early), and one takes about as long as one placement
 * pass. Not foreseen: jobs that are submitted, cancelled or fail, elastic jobs that grow or leave nodes, and nodes that
 * come or go. */

struct forecast;

struct forecast_start {
    int64_t job;
    int position;       /* in the queue; from 1 */
    bool known;         /* start_ms */
    int64_t start_ms;   /* wall time */
    int64_t after_job;  /* the job at whose end it starts; 0: none, or several */
    char *after_node;   /* where that job gives it its place; NULL: not known */
    bool after_unknown; /* it starts after jobs, or after_job, of which nobody knows when they end */
    bool impossible;    /* the nodes could not run it even if they were empty */
};

struct forecast *forecast_begin(const struct core *core, struct core_now now);
bool forecast_step(struct forecast *f); /* false: there is nothing left to do */
bool forecast_done(const struct forecast *f);
/* NULL: the job was not in the queue. Borrowed. */
const struct forecast_start *forecast_find(const struct forecast *f, int64_t job);
void forecast_free(struct forecast *f);

/* Grows with every change of the core that can change a forecast, but not with the progress of jobs. */
int64_t core_queue_revision(const struct core *core);
/* The flags with which the waiting job would start at once: "--nodes 1"; the caller frees; NULL: there are none. */
char *core_start_at_once(const struct core *core, int64_t job);

#endif
