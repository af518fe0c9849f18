#ifndef DDP_DAEMON_COORDINATOR_CORE_FAILURE_RESTART_RULE_H
#define DDP_DAEMON_COORDINATOR_CORE_FAILURE_RESTART_RULE_H

#include "daemon/coordinator/core/model.h"

/* Whether a restart can answer the failure of a job's current generation (`restart_on` of the job file). The answer
 * follows from the records alone, so it is the same after a restart of the coordinator. */

enum restart_refusal {
    REFUSAL_NONE,   /* the generation has not failed, or a restart may help */
    REFUSAL_ERROR,  /* an error of the program, and the job restarts after faults only */
    REFUSAL_REPEAT, /* the same error for the second time */
};

/* Whether an exit is an error of the program rather than a fault of its surroundings: it ended by itself, with an
 * exit code that no signal explains and that does not say "try again". */
bool restart_rule_is_error(const struct spawn *s, const struct spawn_fact *fact);
/* The number of the signal that ended a process, even if a shell reports it as exit code 128 + N; 0: none did. */
int restart_rule_signal(int code, int signal);
/* Whether a GPU of the worker, which may be dead, is known to be sick. */
bool restart_rule_gpu_is_sick(const struct spawn *s);

/* Asks nothing about max_restarts. */
enum restart_refusal restart_rule_refuses(const struct job *job);
/* Whether the job waits for its workers to end before it ends for that reason. A worker that turns out to have
 * failed first, by a fault, still lets the job restart. */
bool restart_rule_waits(const struct job *job);
/* A sentence with the remedy; NULL: the job has restarted, or ended for another reason. The caller frees. */
char *restart_rule_explain(const struct job *job);

#endif
