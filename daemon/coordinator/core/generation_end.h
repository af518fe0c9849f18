#ifndef DDP_DAEMON_COORDINATOR_CORE_GENERATION_END_H
#define DDP_DAEMON_COORDINATOR_CORE_GENERATION_END_H

#include "daemon/coordinator/core/model.h"

/* The ways in which a generation ends, and with it perhaps its job; generation_end.c describes them. */

struct failure_cause {
    struct spawn *spawn; /* the worker that failed first; NULL: no single worker */
    bool charged;        /* counts as a restart */
    bool error;    /* the program's own exit code: `restart_on` of the job file decides (restart_rule.h) */
    bool fatal;    /* a restart would not help: the job fails */
    bool of_node;  /* the worker's node is at fault, which the job leaves out (failure/node_fault.h) */
    bool late;     /* the generation did not form in time */
    bool follows;  /* such an end is mostly the consequence of another rank's, which may come any moment */
    int exit_code; /* exit code of the job, if this failure ends it */
    const char *text;
};

/* Ends an open, current generation because of a failure. Members that can go on in the next one (survivors.h) are
 * not stopped, and then the failure is charged only if none of them does go on. */
void generation_fail(struct core *core, struct generation *g, const struct failure_cause *cause);
/* Another cause turned out to be the first one of the failure that ended the job's current generation. The
 * consequences stay: the generation has ended. Only the reasons change, the job's exit code if the job fails, and
 * whether the job restarts if that is not settled yet. */
void generation_replace_cause(struct core *core, struct generation *g, const struct failure_cause *cause);
/* Ends a generation that must not start; the job waits in recovering. Does not count as a restart. */
void generation_hold(struct core *core, struct generation *g, const char *why);
/* Lets the generation finish its step and snapshot; the next one then forms. Does not count as a restart. */
void generation_drain(struct core *core, struct generation *g, const char *why);
/* The generation's members wait between two steps, and the next generation forms within this call: it gives them
 * ranks, or stops those that it does not need. Does not count as a restart. */
void generation_hand_over(struct core *core, struct generation *g, const char *why);
/* Ends the job. kill: without a last snapshot and without grace. */
void job_stop(struct core *core, struct job *job, enum job_state goal, int exit_code, bool kill,
              const char *why);
/* A worker's error is about to end the job: its GPU's node gets the time to report the GPU. */
void generation_await_gpu_news(struct core *core, struct job *job);
/* Continues with the job if all workers that it waited for are dead. */
void job_settle(struct core *core, struct job *job);
/* The worker is known to be dead: frees its slot. The job is settled by the event that this raises. */
void spawn_mark_dead(struct core *core, struct spawn *s);
/* The job's survivors do not go on: they are stopped, and the failure that they outlived counts like any other. */
void generation_give_up_survivors(struct core *core, struct job *job, const char *why);
/* The same, but the failure does not count: the user wants the job to begin anew. */
void generation_drop_survivors(struct core *core, struct job *job, const char *why);
/* The same for the survivors on one node, or if node is NULL on all nodes. The caller settles the job. */
void generation_lose_survivors(struct core *core, struct job *job, const struct node *node, const char *why);
/* As generation_lose_survivors, for one survivor that now says it cannot go on. */
void generation_lose_survivor(struct core *core, struct spawn *s, const char *why);
/* Survivors go on in the next generation, so the failure of the last one does not count. */
void generation_forgive(struct core *core, struct job *job);

#endif
