#include "daemon/agent/gpu/gpu_health.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

#define XID_OFF_THE_BUS 79

/* The Xid errors of NVIDIA's catalogue whose fault outlives the program that met them. */
static const struct {
    int xid;
    const char *meaning, *remedy;
} bad[] = {
    {48, "memory error of two bits", "reset the GPU"},
    {62, "a microcontroller of the GPU has halted", "reset the GPU"},
    {63, "a page of memory is being replaced", "reset the GPU"},
    {64, "a page of memory could not be replaced", "have the GPU replaced"},
    {74, "NVLink error", "reset the GPU and its NVLink peers"},
    {XID_OFF_THE_BUS, "fell off the bus", "power-cycle"},
    {94, "memory error in one program", "reset the GPU"},
    {95, "memory error that more than one program may have met", "reset the GPU"},
    {119, "the GPU's system processor does not answer", "reset the GPU"},
    {120, "error of the GPU's system processor", "reset the GPU"},
    {140, "memory error that was not corrected", "reset the GPU"},
};

const char *gpu_xid_meaning(int xid)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (bad[i].xid == xid)
            return bad[i].meaning;
    return NULL;
}

static const char *xid_remedy(int xid)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (bad[i].xid == xid)
            return bad[i].remedy;
    return "";
}

static void xid_record(struct gpu_health *h, int xid, int64_t wall_ms)
{
    const struct text at = text_clock(wall_ms, wall_ms, false);

    h->sick = true;
    h->lost |= xid == XID_OFF_THE_BUS;
    snprintf(h->problem, sizeof(h->problem), "Xid %d at %s (%s): %s, then run ddpctl undrain", xid, at.text,
             gpu_xid_meaning(xid), xid_remedy(xid));
}

/* Of several Xids the loss is the worst. A GPU that is sick already keeps its first problem, the likely cause
 * of the others, unless it is lost now. */
static void health_check_xids(struct gpu_health *h, const int *xids, int64_t wall_ms)
{
    int worst = 0;

    for (; *xids; xids++)
        if (gpu_xid_meaning(*xids) && worst != XID_OFF_THE_BUS)
            worst = *xids;
    if (worst && (!h->sick || (worst == XID_OFF_THE_BUS && !h->lost)))
        xid_record(h, worst, wall_ms);
}

static void health_check_state(struct gpu_health *h, const struct nvml_reading *r, int index, int64_t wall_ms)
{
    const struct text at = text_clock(wall_ms, wall_ms, false);

    if (r->lost && !h->lost) { /* Xid 79 may have reported the loss already */
        h->sick = h->lost = true;
        snprintf(h->problem, sizeof(h->problem), "%s at %s: power-cycle, then run ddpctl undrain",
                 r->why[0] ? r->why : "fell off the bus", at.text);
    }
    if (h->sick)
        return;
    if (r->stuck)
        snprintf(h->problem, sizeof(h->problem),
                 "needs a reset, the driver said at %s: reset the GPU, then run ddpctl undrain", at.text);
    else if (r->ecc_errors > 0)
        snprintf(h->problem, sizeof(h->problem),
                 "%" PRId64
                 " memory errors that ECC did not correct at %s: reset the GPU, then run ddpctl undrain",
                 r->ecc_errors, at.text);
    else if (r->mig)
        snprintf(
            h->problem, sizeof(h->problem),
            "is in MIG mode, which ddp does not use: run nvidia-smi -i %d -mig 0, then run ddpctl undrain",
            index);
    h->sick = h->problem[0] != '\0';
}

static void health_check_speed(struct gpu_health *h, uint64_t slowed_by)
{
    const char *by = slowed_by & NVML_SLOWED_BY_HEAT       ? "heat"
                     : slowed_by & NVML_SLOWED_BY_POWER    ? "the power supply"
                     : slowed_by & NVML_SLOWED_BY_HARDWARE ? "its hardware"
                                                           : NULL;

    h->notice[0] = '\0';
    if (by)
        snprintf(h->notice, sizeof(h->notice), "is slowed down by %s", by);
}

bool gpu_health_update(struct gpu_health *h, const struct nvml_reading *reading, int index, int64_t wall_ms)
{
    struct gpu_health before = *h;

    health_check_xids(h, reading->xids, wall_ms);
    health_check_state(h, reading, index, wall_ms);
    health_check_speed(h, reading->slowed_by);
    return before.sick != h->sick || before.lost != h->lost || strcmp(before.problem, h->problem) != 0;
}

void gpu_health_clear(struct gpu_health *h)
{
    memset(h, 0, sizeof(*h));
}
