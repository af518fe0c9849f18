#ifndef DDP_CLIENT_RUN_BATCH_TASK_H
#define DDP_CLIENT_RUN_BATCH_TASK_H

#include "client/run/batch_allocation.h"
#include "client/run/run_request.h"
#include "client/run/taskmates.h"

/* `ddpctl run` inside of a batch system: what the allocation says goes where nobody else said anything, and
 * of several tasks on a node one runs. Who says --standalone, or --node-rank for each task, is taken at his
 * word. */

struct batch_task {
    struct batch_allocation allocation; /* read first, by batch_allocation_here */
    struct taskmates mates;             /* .fd = -1 before */
};

/* Of this process's environment and host name. */
MUST_CHECK enum err_code batch_allocation_here(struct batch_allocation *a, struct err *e);
/* *l is what flags and PET_* left open. */
void batch_task_enter(struct batch_task *b, struct run_request *r);
void batch_task_release(struct batch_task *b); /* for CLEANUP too */

/* What an allocation fills in. Pure: batch_task_enter calls it. */
void batch_task_fill(const struct batch_allocation *a, struct run_request *r);
/* SIGUSR1, the warning before the end as in #SBATCH --signal=USR1@60, goes to all processes: it stops a train
 * job; a command gets it as well, and what it makes of it counts. */
void batch_task_signals(const struct batch_task *b, enum job_kind kind, struct run_request *r);
/* True where a train job goes on from what an earlier run of this same batch job has committed. */
bool batch_task_resumes(const struct batch_task *b, const struct job_spec *spec);

/* True: this task runs, and batch_task_end hands on its code. False: it has waited for the one that ran, *code is
 * what that one ended with. */
MUST_CHECK enum err_code batch_task_lead(struct batch_task *b, bool *leads, int *code, struct err *e);
void batch_task_end(struct batch_task *b, int code);

#endif
