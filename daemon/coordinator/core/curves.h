#ifndef DDP_DAEMON_COORDINATOR_CORE_CURVES_H
#define DDP_DAEMON_COORDINATOR_CORE_CURVES_H

#include "base/worker/metric.h"
#include "daemon/coordinator/core/model.h"

/* Where a job's metrics come from, whether its loss still moves, and whether ranks that average still agree. If the
 * loss is constant or not a number for CURVES_STILL_STEPS steps, the event nothing_learned is recorded once in the
 * generation, and the job has a note until the loss moves. If the agreement of ranks was low in SYNC_LOW_ROUNDS
 * rounds in a row (base/job/job_sync.h), the event low_agreement is recorded once, and once after each change by
 * `ddpctl tune`. The job has a note until a round's agreement is higher. The count of rounds begins at 0 in each
 * generation, and after each such change. */
#define CURVES_STILL_STEPS 100
/* A few losses, rounded to four digits, may be equal by chance; so many are not. */
#define CURVES_STILL_REPORTS 10
/* A loss that was read from a program's output needs this many times the steps and reports, unless it is not a number, because
 * a progress bar repeats a loss until the program sets a new one. A loss with fewer than three digits proves nothing. */
#define CURVES_CAPTURED_TIMES 10

/* A report of a member, after its metrics were kept. */
void curves_take(struct core *core, struct job *job, const struct rank *rank,
                 const struct metric_report *report);
void curves_notes(const struct job *job, struct core_job_status *out);

#endif
