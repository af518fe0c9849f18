/* The processes of a command commit snapshots, and agree on a step at which all of them stop.
 *
 * Both are levels. A node's facts repeat what a process asked for last, and the wish repeats the answer, so a lost
 * connection, a new agent or a new coordinator loses neither.
 *
 * Commit: the fact has the number of the commit and a path. The answer goes out with a wish, and so after the
 * transaction that has the snapshot. The same transaction has the number, in the record of the spawn. So a coordinator
 * that starts again knows a repeated commit and answers it, even if the generation has ended or other ranks have
 * committed since; it changes no snapshot. A refusal is not in the records: the commit is judged again.
 *
 * Stop: when the generation drains, its ranks learn that they are to stop, but not where: no rank may already be past
 * that step. Each rank names a step P and promises to wait there until we have answered. When all living ranks have
 * promised, we choose the largest P as the step: each of them is before it or at it. A rank that comes to its P earlier promises a
 * larger one, and goes on when we have answered, with that promise or with the step. So a rank waits for the coordinator
 * only and never for another rank, which might wait for it. The step is durable: some ranks may have stopped there when
 * the coordinator restarts. */
#include "daemon/coordinator/core/worker_asks.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/core/emit.h"
#include "daemon/coordinator/core/snapshots/snapshots.h"

static void commit_apply(struct core *core, struct spawn *s, const struct spawn_asks *asks)
{
    struct err e = {0};

    free(steal(s->asked.error));
    s->asked.commit = asks->commit;
    s->asked.stale = false;
    if (snapshots_commit_path(core, s, asks, &e) == ERR_OK) {
        s->r.last_commit = asks->commit;
        emit_spawn(core, s, CHANGE_SPAWN_PUT);
        return;
    }
    s->asked.error = xstrdup(e.msg);
    s->asked.stale = e.code == ERR_ABORTED;
}

void worker_asks_apply(struct core *core, struct spawn *s, const struct spawn_asks *asks)
{
    bool commit = asks->commit && asks->commit != s->asked.commit;
    bool promise = asks->promise > s->asked.promise;

    if (s->job->spec.kind != JOB_COMMAND)
        return;
    s->asked.heeds |= asks->heeds;
    if (commit)
        commit_apply(core, s, asks);
    if (promise)
        s->asked.promise = asks->promise;
    if (!commit && !promise)
        return;
    s->node->wish_dirty = true;
    worker_asks_settle(core, s->rank->generation);
}

bool worker_asks_heeded(const struct generation *g)
{
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->asked.heeds)
            return true;
    return false;
}

void worker_asks_settle(struct core *core, struct generation *g)
{
    int64_t step = 0;

    if (g->r.state != GENERATION_DRAINING || g->r.stop_step || g->job->spec.kind != JOB_COMMAND)
        return;
    for (int i = 0; i < g->r.world_size; i++) {
        const struct spawn *s = g->ranks[i].spawn;
        if (s->r.dead)
            continue;
        if (!s->asked.promise)
            return;
        if (s->asked.promise > step)
            step = s->asked.promise;
    }
    if (!step)
        return;
    g->r.stop_step = step;
    emit_generation(core, g, CHANGE_GENERATION_PUT);
    emit_event(core, g->job, "stop_step", "all ranks of generation %" PRId64 " stop at step %s", g->r.number,
               text_count(step).text);
    for (int i = 0; i < g->r.world_size; i++)
        if (!g->ranks[i].spawn->r.dead && g->ranks[i].spawn->node)
            g->ranks[i].spawn->node->wish_dirty = true;
}
