#ifndef DDP_CLIENT_RUN_BATCH_H
#define DDP_CLIENT_RUN_BATCH_H

#include "client/run/allocation.h"
#include "client/run/launch.h"
#include "client/run/taskmates.h"

/* `ddpctl run` inside of a batch system: what the allocation says goes where nobody else said anything, and
 * of several tasks on a node one runs. Who says --standalone, or --node-rank for each task, is taken at his
 * word. */

struct batch {
    struct allocation allocation; /* read first, by allocation_here */
    struct taskmates mates;       /* .fd = -1 before */
};

/* Of this process's environment and host name. */
MUST_CHECK enum err_code allocation_here(struct allocation *a, struct err *e);
/* *l is what flags and PET_* left open. */
void batch_enter(struct batch *b, struct launch *l);
void batch_release(struct batch *b); /* for CLEANUP too */

/* What an allocation fills in. Pure: batch_enter calls it. */
void batch_fill(const struct allocation *a, struct launch *l);
/* SIGUSR1, the warning before the end as in #SBATCH --signal=USR1@60, goes to all processes: it stops a train
 * job; a command gets it as well, and what it makes of it counts. */
void batch_signals(const struct batch *b, enum job_kind kind, struct launch *l);
/* True where a train job goes on from what an earlier run of this same batch job has committed. */
bool batch_resumes(const struct batch *b, const struct job_spec *spec);

/* True: this task runs, and batch_end hands on its code. False: it has waited for the one that ran, *code is
 * what that one ended with. */
MUST_CHECK enum err_code batch_lead(struct batch *b, bool *leads, int *code, struct err *e);
void batch_end(struct batch *b, int code);

#endif
