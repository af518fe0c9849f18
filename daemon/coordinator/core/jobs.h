#ifndef DDP_DAEMON_COORDINATOR_CORE_JOBS_H
#define DDP_DAEMON_COORDINATOR_CORE_JOBS_H

#include "daemon/coordinator/core/model.h"

/* A job from submit to retention: submit, cancel, values that change while it runs, the start of a generation, deadlines, and the removal of
 * old jobs. generation_end.h has the ways in which a job ends. */
void jobs_submit(struct core *core, const struct core_event *event);
void jobs_cancel(struct core *core, const struct core_event *event);
void jobs_tune(struct core *core, const struct core_event *event);
/* Adds to the status that the job's ranks have not taken over its newest values yet. */
void jobs_tune_notes(const struct job *job, struct core_job_status *out);
void jobs_started(struct core *core, struct job *job); /* the current generation runs, so the job does */
void jobs_tick(struct core *core, struct job *job);
int64_t jobs_deadline(const struct job *job); /* of the next tick; INT64_MAX: none */
/* Removes finished jobs that are older than core_config.retain_jobs_ms or beyond retain_jobs. */
void jobs_retain(struct core *core);

#endif
