#include "daemon/coordinator/core/generation_thin.h"

#include "daemon/coordinator/core/emit.h"

#define DAY_MS (24 * 3600 * 1000LL)

static bool counts_as_replacement(const struct core *core, const struct generation *g)
{
    return g->r.state == GENERATION_FAILED && core->now.wall_ms - g->r.closed_ms < DAY_MS;
}

/* before: the one before it among those that are left. After a failure, a generation tells whether ranks went on. */
static bool generation_is_of_use(const struct core *core, const struct generation *g,
                                 const struct generation *before)
{
    if (generation_open(g) || g->r.charged || g->r.error || g->r.failed_spawn ||
        counts_as_replacement(core, g) || counts_as_replacement(core, before))
        return true;
    for (int i = 0; i < g->r.world_size; i++)
        if (g->ranks[i].spawn->rank == &g->ranks[i] || g->ranks[i].spawn->joined_as == &g->ranks[i])
            return true;
    return false;
}

void generation_thin(struct core *core, struct job *job)
{
    const size_t all = job->generation_count, newest = (size_t)core->config.keep_generations;
    size_t left = 1; /* the first one stays */

    if (all <= newest + 1)
        return;
    for (size_t i = 1; i < all; i++) {
        struct generation *g = job->generations[i];

        if (i + newest >= all || generation_is_of_use(core, g, job->generations[left - 1])) {
            job->generations[left++] = g;
            continue;
        }
        emit_generation_removed(core, g);
        generation_free(g);
    }
    job->generation_count = left;
}
