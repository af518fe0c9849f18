#ifndef DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_SURVIVORS_H
#define DDP_DAEMON_COORDINATOR_CORE_PLACEMENT_SURVIVORS_H

#include "daemon/coordinator/core/model.h"

/* Workers of a train job that outlive a failed generation; survivors.c says which ones, and what follows. */

/* The longest that survivors wait: enough for old workers to be killed, and for nodes to connect or be lost. */
#define SURVIVORS_WAIT_MS 60000

/* Whether the member survives if its generation fails now. culprit: the worker that failed; NULL: no single one.
 * late: the generation did not form in time. Members that had not joined then do not survive, unless they are computing. */
bool survivors_include(const struct generation *g, const struct spawn *s, const struct spawn *culprit,
                       bool late);
/* Whether the generation has not formed only because survivors are in a long computation, such as an evaluation: they
 * have not joined, and their nodes say that they use the CPU. Such a generation waits longer than join_timeout. */
bool survivors_still_compute(const struct generation *g);
/* Whether a failure of the job's newest generation, whose last step is recorded, may leave survivors at all. culprit: as
 * above, with its exit recorded. */
bool survivors_may_go_on(const struct job *job, const struct spawn *culprit);
/* The generation forms, and members of it would go on in another one with the state that they have. */
bool survivors_bring_state(const struct generation *g);
bool survivors_wait(const struct job *job); /* some are between two generations */
/* How many times in the last 24 hours a generation failed and its survivors went on in the next one. */
int64_t survivors_count_replacements(const struct core *core, const struct job *job);
/* The survivor that goes on as this local rank of the node, with so many GPUs (0: a CPU slot); NULL: none. */
struct spawn *survivors_find(const struct job *job, const struct node *node, int local_rank, int gpus_each);
/* How many of the first `procs` local ranks of the node have a survivor. */
int survivors_on_node(const struct job *job, const struct node *node, int procs, int gpus_each);

#endif
