#ifndef DDP_DAEMON_AGENT_GPU_AGENT_GPUS_H
#define DDP_DAEMON_AGENT_GPU_AGENT_GPUS_H

#include "base/err.h"
#include "daemon/agent/agent_state.h"

/* Joins what an agent knows of its GPUs: which it offers (gpus.h) and what the trainer would use on them
 * (trainer_plugin.h). The hello tells both, and either may come late: the driver after the agent, the
 * trainer's answer after its time. Then a new hello tells it. */

/* Opens agent->gpus and asks the trainer if there are GPUs. Waits for the driver: 30 s, or 2 s on a node
 * whose kept wish has workers, so that the node is not taken for lost. Errors as gpus_open has them. */
MUST_CHECK enum err_code agent_gpus_open(struct agent *a, struct err *e);

/* Adds what the GPUs of this worker do, as the wish assigns them. */
void agent_gpus_add_usage(void *agent, int64_t job, int64_t spawn, struct usage *out);

#endif
