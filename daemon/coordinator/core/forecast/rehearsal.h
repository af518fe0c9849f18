#ifndef DDP_DAEMON_COORDINATOR_CORE_FORECAST_REHEARSAL_H
#define DDP_DAEMON_COORDINATOR_CORE_FORECAST_REHEARSAL_H

#include "daemon/coordinator/core/model.h"

/* A copy of the core's state on which placement is run ahead. It has the nodes, the jobs that hold slots, and the jobs that
 * wait, and of them only what placement reads. It borrows nothing from the core that it was made of; what placement decides on
 * it is forgotten. */
struct rehearsal {
    struct core *core;
    struct core_out out; /* cleared after each pass */
};

void rehearsal_open(struct rehearsal *r, const struct core *core, struct core_now now); /* with all nodes */
void rehearsal_close(struct rehearsal *r);
/* Adds a copy of the job, which holds the slots of its living workers, and moves no more until rehearsal_end. */
struct job *rehearsal_add_running(struct rehearsal *r, const struct job *job);
/* Adds a copy of a job for which placement_wants is true. */
struct job *rehearsal_add_waiting(struct rehearsal *r, const struct job *job);
/* One placement pass at that time. A job that is placed is no longer queued or recovering. */
void rehearsal_place(struct rehearsal *r, struct core_now now);
/* The job has ended, and its workers are dead: frees it. */
void rehearsal_end(struct rehearsal *r, struct job *job);

#endif
