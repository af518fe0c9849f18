#include "daemon/coordinator/core/snapshots/unsaved.h"

bool unsaved_waits(const struct core *core, const struct job *job)
{
    for (size_t i = 0; i < job->snapshot_fault_count; i++)
        if (core->now.boot_ms < job->snapshot_faults[i].waits_until)
            return true;
    return false;
}
