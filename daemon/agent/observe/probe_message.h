#ifndef DDP_DAEMON_AGENT_OBSERVE_PROBE_MESSAGE_H
#define DDP_DAEMON_AGENT_OBSERVE_PROBE_MESSAGE_H

#include "daemon/agent/observe/worker_activity.h"
#include "daemon/agent/observe/worker_samples.h"
#include "proto/ddp.pb-c.h"

/* The answer to a probe about one worker, from a detailed sample: its processes, what they wait for, and the
 * age of its output. Borrows the sample's texts. */
Ddp__V1__WorkerProbe *probe_message_make(const struct worker_sample *sample,
                                         const struct worker_activity *activity, int64_t now, int64_t wall);
void probe_message_free(Ddp__V1__WorkerProbe *worker);

#endif
