#include "daemon/coordinator/core/snapshots/unsaved.h"

#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/snapshots/snapshots.h"

bool unsaved_waits(const struct core *core, const struct job *job)
{
    for (size_t i = 0; i < job->snapshot_fault_count; i++)
        if (core->now.boot_ms < job->snapshot_faults[i].waits_until)
            return true;
    return false;
}

char *unsaved_loss(const struct job *job)
{
    const struct snapshot_record *newest = snapshots_newest(job);
    const struct snapshot_fault *last = NULL;

    for (size_t i = 0; i < job->snapshot_fault_count; i++)
        if (!last || job->snapshot_faults[i].step > last->step)
            last = &job->snapshot_faults[i];
    /* Where each node writes its own directory, another one may have saved the state. */
    if (!last || (newest && newest->step >= last->step))
        return NULL;
    CLEANUP(free_text)
    char *left = newest ? xasprintf("the newest snapshot is of step %s", text_count(newest->step).text)
                        : xstrdup("there is no snapshot");
    return xasprintf("the last snapshot, of step %s, could not be written: %s; %s",
                     text_count(last->step).text, last->why, left);
}
