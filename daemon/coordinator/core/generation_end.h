#ifndef DDP_DAEMON_COORDINATOR_CORE_GENERATION_END_H
#define DDP_DAEMON_COORDINATOR_CORE_GENERATION_END_H

#include "daemon/coordinator/core/model.h"

/* The ways in which a generation ends, and with it perhaps its job; generation_end.c describes them. */

struct failure_cause {
    struct spawn *spawn; /* the worker that failed first; NULL: no single worker */
    bool charged;        /* counts as a restart */
    bool fatal;          /* a restart would not help: the job fails */
    int exit_code;       /* exit code of the job, if this failure ends it */
    const char *text;
};

/* Ends an open, current generation because of a failure. */
void generation_fail(struct core *core, struct generation *g, const struct failure_cause *cause);
/* Ends a generation that must not start; the job waits in recovering. Does not count as a restart. */
void generation_hold(struct core *core, struct generation *g, const char *why);
/* Lets the generation finish its step and snapshot; the next one then forms. Does not count as a restart. */
void generation_drain(struct core *core, struct generation *g, const char *why);
/* Ends the job. kill: without a last snapshot and without grace. */
void job_stop(struct core *core, struct job *job, enum job_state goal, int exit_code, bool kill,
              const char *why);
/* Continues with the job if all workers that it waited for are dead. */
void job_settle(struct core *core, struct job *job);
/* The worker is known dead: frees its slot. The job is settled by the event that this raises. */
void spawn_mark_dead(struct core *core, struct spawn *s);
void generation_stop_spawns(struct core *core, struct generation *g, enum core_stop stop);

#endif
