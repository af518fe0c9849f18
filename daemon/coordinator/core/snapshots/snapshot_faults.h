#ifndef DDP_DAEMON_COORDINATOR_CORE_SNAPSHOTS_SNAPSHOT_FAULTS_H
#define DDP_DAEMON_COORDINATOR_CORE_SNAPSHOTS_SNAPSHOT_FAULTS_H

#include "daemon/coordinator/core/model.h"

/* Snapshots that fail or do not come: events, and notes in the job's status. */
void snapshot_faults_failed(struct core *core, const struct core_event *event);
void snapshot_faults_committed(struct core *core, const struct spawn *s, int64_t step);
void snapshot_faults_stepped(struct core *core,
                             struct job *job); /* a step was reported: are its snapshots overdue? */
void snapshot_faults_formed(
    struct job *job); /* drops the faults of nodes that the new generation does not use */
void snapshot_faults_notes(const struct core *core, const struct job *job, struct core_job_status *out);

#endif
