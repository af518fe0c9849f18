#ifndef DDP_DAEMON_COORDINATOR_CORE_JOBS_H
#define DDP_DAEMON_COORDINATOR_CORE_JOBS_H

#include "base/buf.h"
#include "base/job/job_tune.h"
#include "daemon/coordinator/core/model.h"

/* A job from submit to retention: submit, cancel, values that change while it runs, the start of a generation, deadlines, and the removal of
 * old jobs. generation_end.h has the ways in which a job ends. */
void jobs_submit(struct core *core, const struct core_event *event);
void jobs_cancel(struct core *core, const struct core_event *event);
void jobs_tune(struct core *core, const struct core_event *event);
/* Adds to the status that the job's ranks have not taken over its newest values yet. */
void jobs_tune_notes(const struct job *job, struct core_job_status *out);
/* Makes this the job's newest version: its job file, durably, and what it says. A user's resize stays as it is. */
/* Whether a wish has room for them. A printed job file can be longer than the one that its user wrote. */
MUST_CHECK enum err_code jobs_check_size(const char *job_file, char *const *env, struct err *e);
void jobs_take_version(struct core *core, struct job *job, struct job_tuned *version);
void jobs_started(struct core *core, struct job *job); /* the current generation runs, so the job does */
void jobs_tick(struct core *core, struct job *job);
int64_t jobs_deadline(const struct job *job); /* of the next tick; INT64_MAX: none */
/* Whether the records of an ended job must stay for now. why (or NULL) gets the reason, "job 9 continues from its
 * snapshots". */
bool jobs_needed_by(const struct core *core, const struct job *job, struct buf *why);
void jobs_remove(struct core *core, struct job *job); /* its records, at the next commit */
/* Removes finished jobs that are older than core_config.retain_jobs_ms or beyond retain_jobs. */
void jobs_retain(struct core *core);

#endif
