#include "daemon/coordinator/core/generation_stop.h"

/* The supervisor itself sends SIGKILL when the grace time after SIGTERM is over. If the worker still lives
 * this much later, the supervisor is told to kill it. */
#define KILL_AFTER_GRACE_MS 10000
/* A worker that lives this long after SIGKILL is stuck in the kernel, if its node says so too. */
#define STUCK_AFTER_KILL_MS 20000

/* Members that have gone on to a newer generation, or wait for one, are not stopped with this one. Members that are
 * stopped by SIGKILL once stay so: the survivors of their generation may be given up later, by SIGTERM. Returns false if
 * nobody is stopped. */
static bool generation_mark_stopped(struct generation *g, enum core_stop stop)
{
    bool any = false;

    for (int i = 0; i < g->r.world_size; i++) {
        struct spawn *s = g->ranks[i].spawn;
        if (!s || !rank_is_held(&g->ranks[i]) || s->r.dead || spawn_is_between(s))
            continue;
        s->killed |= stop == CORE_STOP_KILL;
        any = true;
    }
    return any;
}

void generation_stop_spawns(struct core *core, struct generation *g, enum core_stop stop)
{
    int64_t grace = g->job->spec.grace_ms;

    g->stop_at = 0;
    if (!generation_mark_stopped(g, stop))
        return; /* there is nobody to stop, and no deadline to wait for */
    g->stop = stop;
    if (stop == CORE_STOP_SNAPSHOT)
        g->stop_at = core->now.boot_ms + grace + 1;
    else if (stop == CORE_STOP_TERM)
        g->stop_at = core->now.boot_ms + grace + KILL_AFTER_GRACE_MS;
    else
        g->stop_at = core->now.boot_ms + STUCK_AFTER_KILL_MS;
    core_wake(core, g->stop_at);
    for (int i = 0; i < g->r.world_size; i++) /* the nodes learn of the stop by their next wish */
        if (g->ranks[i].spawn && !g->ranks[i].spawn->r.dead && g->ranks[i].spawn->node)
            g->ranks[i].spawn->node->wish_dirty = true;
}
