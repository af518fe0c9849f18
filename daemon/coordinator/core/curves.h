#ifndef DDP_DAEMON_COORDINATOR_CORE_CURVES_H
#define DDP_DAEMON_COORDINATOR_CORE_CURVES_H

#include "base/metric.h"
#include "daemon/coordinator/core/model.h"

/* Where a job's metrics come from, and whether its loss still moves. A loss that is constant or not a number for
 * CURVES_STILL_STEPS steps is said once a generation, as the event nothing_learned and in the job's notes, until it moves. */
#define CURVES_STILL_STEPS 100
#define CURVES_STILL_REPORTS                                                                                 \
    10 /* rounded to four digits, two losses far apart may be equal by chance; so many are not */
/* A loss that was read from what a program prints needs so many times the steps and reports, unless it is not a number: a
 * progress bar shows a loss again until the program sets a new one. With less than three digits it proves nothing. */
#define CURVES_CAPTURED_TIMES 10

/* A report of a member, after its metrics were kept. */
void curves_take(struct core *core, struct job *job, const struct rank *rank,
                 const struct metric_report *report);
void curves_notes(const struct job *job, struct core_job_status *out);

#endif
