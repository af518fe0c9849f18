#ifndef DDP_DAEMON_AGENT_GPU_GPU_HEALTH_H
#define DDP_DAEMON_AGENT_GPU_GPU_HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/agent/gpu/nvml.h"

/* When a GPU is not to be used, and what to do about it. Sick is for good: what was seen once counts until
 * the operator says otherwise (gpu_health_clear) or the machine has started anew; what NVML still says of it
 * then makes it sick again. */

struct gpu_health {
    char problem[160]; /* for people: "Xid 79 at 14:02, fell off the bus: power-cycle, then undrain"; "": none
                        */
    char notice[64];   /* it is well, but ...: "slowed down by heat" */
    bool sick, lost;
};

/* Takes in one reading; true when sick, lost or the problem changed. wall_ms: for the time of day. */
bool gpu_health_update(struct gpu_health *h, const struct nvml_reading *reading, int index, int64_t wall_ms);
void gpu_health_clear(struct gpu_health *h);

/* What an Xid means for the GPU; NULL: a program's own fault, or nothing to stop using it for. */
const char *gpu_xid_meaning(int xid);

#endif
