#ifndef DDP_CLIENT_RUN_MASTER_PORT_H
#define DDP_CLIENT_RUN_MASTER_PORT_H

#include <stdint.h>

#include "base/buf.h"

/* MASTER_PORT of a job on one machine. Programs written for torchrun may contain the port of --master-port themselves, as in
 * init_process_group(init_method="tcp://localhost:29501"), so the workers get this port if it is free. */

/* Returns the range of ports for the private agent: this port alone, for every start of the job. The caller frees it. Returns
 * NULL if port is 0 or cannot be used: the agent then uses its own range, and talk gets a warning that says why. */
char *master_port_range(int64_t port, struct buf *talk);

#endif
