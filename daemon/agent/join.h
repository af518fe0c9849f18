#ifndef DDP_DAEMON_AGENT_JOIN_H
#define DDP_DAEMON_AGENT_JOIN_H

#include "base/err.h"

/* `ddp-agent join HOST:PORT --token FILE|-`: writes the token file and the config file of this node's agent, and prints
 * the command that starts it. Usage errors, --help and --version end the program. */
MUST_CHECK enum err_code agent_join(int argc, char **argv, struct err *e);

#endif
