#ifndef DDP_CLIENT_RUN_BATCH_BATCH_TASK_H
#define DDP_CLIENT_RUN_BATCH_BATCH_TASK_H

#include "client/run/batch/batch_allocation.h"
#include "client/run/batch/taskmates.h"
#include "client/run/run_request.h"

/* `ddpctl run` as a task of a batch system. The allocation fills what flags and PET_* left open. If the batch
 * system started several tasks on a node, one of them runs the job and the others wait for it. --standalone,
 * and
 * --node-rank for each task, override the batch system. */

struct batch_task {
    struct batch_allocation allocation; /* read by batch_allocation_here, before the other calls */
    struct taskmates mates;             /* the caller sets .fd to -1 */
};

/* Reads the allocation from this process's environment and host name. */
MUST_CHECK enum err_code batch_allocation_here(struct batch_allocation *a, struct err *e);
/* Fills what flags and PET_* left open in the request. */
void batch_task_enter(struct batch_task *b, struct run_request *r);
void batch_task_release(struct batch_task *b); /* for CLEANUP too */

/* The part of batch_task_enter that only depends on its arguments. */
void batch_task_fill(const struct batch_allocation *a, struct run_request *r);
/* Decides on SIGUSR1, with which batch systems warn of the time limit (#SBATCH --signal=USR1@60) and which
 * all processes get. It stops a train job, which writes a snapshot. A command gets the signal itself and
 * handles it, so ddpctl ignores it. */
void batch_task_signals(const struct batch_task *b, enum job_kind kind, struct run_request *r);
/* True if the train job continues from the snapshots of an earlier run of the same batch job. */
bool batch_task_resumes(const struct batch_task *b, const struct job_spec *spec);

/* *leads is true: this task runs the job, and batch_task_end passes its exit code to the others. *leads is
 * false: this task has waited for the one that ran the job, and *code is that one's exit code. */
MUST_CHECK enum err_code batch_task_lead(struct batch_task *b, bool *leads, int *code, struct err *e);
void batch_task_end(struct batch_task *b, int code);

#endif
