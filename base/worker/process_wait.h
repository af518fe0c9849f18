#ifndef DDP_BASE_WORKER_PROCESS_WAIT_H
#define DDP_BASE_WORKER_PROCESS_WAIT_H

/* What a sleeping process waits in (daemon/agent/observe/process.h, process_wait) tells whether it waits for its peers in
 * a collective, or for something of its own.
 *
 * Collectives wait in recv or poll on sockets, or in a futex: 0. The higher the number, the less likely is a wait for
 * peers: select may be either (1); files, pipes, locks and children are the worker's own business (2), and a sleep even
 * more so (3). */
int process_wait_own(const char *call, const char *target);

#endif
