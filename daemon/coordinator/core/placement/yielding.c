/* The job at the head of the queue waits for nodes. A running train job leaves them to it if the job
 *   - has a lower priority,
 *   - is elastic, and keeps at least the fewest nodes that it may have, and
 *   - can go on without a stop (handover.c).
 * Nothing is taken from jobs that would have to stop, and nothing unless all that the waiting job lacks becomes free. When
 * there is room again, the job that has left its nodes grows like any elastic job. */
#include "daemon/coordinator/core/placement/yielding.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/placement/handover.h"

static int missing_units(const struct placement_choice *c, enum slot_kind kind)
{
    int free_now = capacity_available(c->node, kind);

    return capacity_units(c) - (free_now > 0 ? free_now : 0);
}

static bool node_has_job(const struct node *node, const struct job *job)
{
    for (size_t i = 0; i < node->spawn_count; i++)
        if (node->spawns[i]->job == job)
            return true;
    return false;
}

/* Names of those nodes that the holder would leave; NULL: none. */
static char **nodes_to_leave(const struct job *holder, const struct placement_choice *nodes, size_t count,
                             enum slot_kind kind)
{
    char **names = NULL;

    for (size_t i = 0; i < count; i++)
        if (missing_units(&nodes[i], kind) > 0 && node_has_job(nodes[i].node, holder))
            names = strv_append(names, nodes[i].node->r.name);
    return names;
}

static bool can_leave(const struct job *holder, char **names)
{
    return job_current(holder)->r.node_count - (int64_t)strv_len(names) >= holder->spec.nodes_min;
}

/* All that is missing is held by jobs that yield, and these can leave as many nodes, and begin with it now. */
static bool all_yield(const struct core *core, const struct job *job, const struct placement_choice *nodes,
                      size_t count, enum slot_kind kind)
{
    bool missing = false, enough = true;

    for (size_t i = 0; i < count; i++) {
        int units = missing_units(&nodes[i], kind);
        missing |= units > 0;
        enough &= capacity_usable(nodes[i].node) && units <= capacity_yielding(job, nodes[i].node, kind);
    }
    for (size_t i = 0; enough && i < core->job_count; i++) {
        if (job_finished(core->jobs[i]) || !job_current(core->jobs[i]) ||
            !handover_yields(core->jobs[i], job))
            continue;
        char **names = nodes_to_leave(core->jobs[i], nodes, count, kind);
        enough = !names || (can_leave(core->jobs[i], names) && handover_may_begin(core, core->jobs[i]));
        strv_free(names);
    }
    return missing && enough;
}

void yielding_begin(struct core *core, const struct job *job, const struct placement_choice *nodes,
                    size_t count, enum slot_kind kind)
{
    CLEANUP(buf_release) struct buf why = {0};

    if (!all_yield(core, job, nodes, count, kind))
        return;
    buf_printf(&why, "job %" PRId64 " has a higher priority", job->r.id);
    for (size_t i = 0; i < core->job_count; i++) {
        struct job *holder = core->jobs[i];
        if (job_finished(holder) || !job_current(holder) || !handover_yields(holder, job))
            continue;
        char **names = nodes_to_leave(holder, nodes, count, kind);
        if (!names || !handover_begin(core, holder, why.data, NULL, names))
            strv_free(names);
    }
}
