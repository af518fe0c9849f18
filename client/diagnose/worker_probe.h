#ifndef DDP_CLIENT_DIAGNOSE_WORKER_PROBE_H
#define DDP_CLIENT_DIAGNOSE_WORKER_PROBE_H

#include "base/buf.h"
#include "proto/ddp.pb-c.h"

/* What an agent's probe of a worker means: which of its processes does the work, and what that one waits for.
 */

void worker_probe_name(struct buf *out, const Ddp__V1__WorkerProbe *w); /* "rank 1 on n2" */
/* The process that does a worker's work. A shell or launcher that only waits for one child is passed over,
 * and a process that is stopped or stuck is preferred. NULL: none was seen. */
const Ddp__V1__ProcessProbe *worker_probe_process(const Ddp__V1__WorkerProbe *worker);
/* Time since a worker's last output or report, in ms; -1: unknown. */
int64_t worker_probe_quiet_ms(const Ddp__V1__WorkerProbe *w);

const char *process_probe_state(const char *state);        /* "T" to "stopped" */
bool process_probe_halted(const Ddp__V1__ProcessProbe *p); /* by a signal or a debugger */
/* How certain it is that the process waits for something other than a peer, 0 to 3. 0 is what processes wait
 * in during a collective. */
int process_probe_elsewhere(const Ddp__V1__ProcessProbe *p);

#endif
