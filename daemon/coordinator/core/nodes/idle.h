#ifndef DDP_DAEMON_COORDINATOR_CORE_NODES_IDLE_H
#define DDP_DAEMON_COORDINATOR_CORE_NODES_IDLE_H

#include "daemon/coordinator/core/model.h"

/* What workers use, and GPUs that are leased but idle; idle.c describes what counts as idle. Times: boot ms. */
void idle_apply(struct core *core, struct node *node, const struct core_event *event);
void idle_forget(struct node *node); /* its session ended, so what its workers use is unknown */
void idle_tick(struct core *core, struct job *job);
int64_t idle_deadline(const struct core *core, const struct job *job); /* INT64_MAX: none */
/* What the worker uses; NULL: not known, or not any more. */
const struct usage *idle_usage(const struct core *core, const struct spawn *s);
/* For how long the least busy GPU of the worker has been idle; 0: it is not, or not known. */
int64_t idle_gpu_ms(const struct core *core, const struct spawn *s);
/* Adds the note that GPUs of the job are idle, if they have been for ten minutes. */
void idle_notes(const struct core *core, const struct job *job, struct core_job_status *out);

#endif
