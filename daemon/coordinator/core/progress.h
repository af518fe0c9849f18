#ifndef DDP_DAEMON_COORDINATOR_CORE_PROGRESS_H
#define DDP_DAEMON_COORDINATOR_CORE_PROGRESS_H

#include "daemon/coordinator/core/model.h"

/* A job's progress as JSON in its record (job->r.progress), so that a restarted coordinator can show it. */
void progress_keep(struct job *job); /* writes the record; the caller emits the job */
void progress_load(struct job *job); /* reads the record */
/* A report came: the progress becomes durable within 30 s. */
void progress_news(struct core *core, struct job *job);
void progress_tick(struct core *core); /* makes the progress of all jobs durable, in one commit */

#endif
