#ifndef DDP_DAEMON_AGENT_GPU_GPU_HEALTH_H
#define DDP_DAEMON_AGENT_GPU_GPU_HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/agent/gpu/nvml.h"

/* Decides when a GPU must not be used, and what the operator should do. A GPU is sick after an Xid error that
 * is not a program's own fault, when it is lost, when the driver demands a reset, when ECC could not correct
 * memory errors, and in MIG mode. It stays sick until the operator clears it (gpu_health_clear) or the
 * machine starts again: a fault that comes and goes would fail one job after another. What NVML still reports
 * then makes it sick again. */

struct gpu_health {
    /* For people: "Xid 79 at 14:02 (fell off the bus): power-cycle, then run ddpctl undrain"; "": no problem. */
    char problem[192];
    char notice[64]; /* for people, of a GPU that is well: "is slowed down by heat" */
    bool sick;
    bool lost; /* it fell off the bus: workers on it cannot go on */
};

/* Takes in one reading. True: sick, lost or the problem has changed. wall_ms gives the time of day in the
 * text. */
bool gpu_health_update(struct gpu_health *h, const struct nvml_reading *reading, int index, int64_t wall_ms);
void gpu_health_clear(struct gpu_health *h);

/* What an Xid error means for the GPU. NULL: the GPU stays usable, for example because a program caused the
 * error. */
const char *gpu_xid_meaning(int xid);

#endif
