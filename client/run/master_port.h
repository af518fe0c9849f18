#ifndef DDP_CLIENT_RUN_MASTER_PORT_H
#define DDP_CLIENT_RUN_MASTER_PORT_H

#include <stdint.h>

#include "base/buf.h"

/* MASTER_PORT of a job on one machine. Programs that torchrun starts may write the port of --master-port down a second time,
 * as in init_process_group(init_method="tcp://localhost:29501"), so the workers get this port if it is free. */

/* Returns the private agent's range of ports, which the caller frees: only this port, for every start of the job. NULL: the
 * agent's own range, because port is 0 or cannot be used; then talk gets a warning that says why. */
char *master_port_range(int64_t port, struct buf *talk);

#endif
