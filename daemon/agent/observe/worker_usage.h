#ifndef DDP_DAEMON_AGENT_OBSERVE_WORKER_USAGE_H
#define DDP_DAEMON_AGENT_OBSERVE_WORKER_USAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/worker/usage.h"
#include "daemon/agent/observe/worker_samples.h"

/* From the samples of a worker to what it uses: rates over the time between two samples. No clock, no I/O. */

struct worker_usage {
    bool seen;
    int64_t at, cpu_ms, read_bytes, write_bytes; /* of the last measured sample */
};

/* Takes in a measured sample that was taken at `at`, CLOCK_BOOTTIME ms. Fills *out but for the GPUs. False: nothing is
 * known, because this is the first sample, or the worker has ended. */
bool worker_usage_update(struct worker_usage *u, const struct worker_sample *sample, int64_t at,
                         struct usage *out);

#endif
