#ifndef DDP_DAEMON_AGENT_COORDINATOR_FILE_H
#define DDP_DAEMON_AGENT_COORDINATOR_FILE_H

#include "daemon/agent/agent_state.h"

/* Writes the coordinator's address where running workers look for it ($DDP_COORDINATOR_FILE). A worker is
 * started with the address, but may run on after the coordinator has moved to another machine. Only the agent
 * may write the file. Does nothing once it is written; after a failure the next call tries again. */
void coordinator_file_write(struct agent *a);

#endif
