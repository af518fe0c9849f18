/* Chooses which of its candidate nodes a job takes. Most jobs take as many as they may have. A job with
 * `reproducible: world` needs a world size that divides its shards: it takes nodes for the largest such world
 * size, and leaves the others to other jobs. */
#include "daemon/coordinator/core/placement/world_size.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/model.h"
#include "daemon/coordinator/core/placement/capacity.h"

#define TRIES 100000 /* bounds one search; with nodes of one or two sizes it takes some dozens */

struct world_search {
    const struct placement_choice *list;
    size_t count, most;
    size_t *taken; /* indices into list, growing */
    size_t taken_count;
    int tries;
};

static bool world_size_tried(const struct world_search *s, size_t from, size_t i)
{
    for (size_t k = from; k < i; k++)
        if (s->list[k].procs == s->list[i].procs)
            return true;
    return false;
}

/* Depth-first search for nodes from index `from` on that have exactly `rest` processes together. Finds the
 * first such choice in the order of the list. If one node leads nowhere, no other node of its size is tried
 * in its place. */
static bool search_world(struct world_search *s, size_t from, int64_t rest)
{
    if (rest == 0)
        return true;
    for (size_t i = from; i < s->count && s->taken_count < s->most; i++) {
        if (s->list[i].procs > rest || world_size_tried(s, from, i))
            continue;
        if (s->tries-- <= 0)
            return false;
        s->taken[s->taken_count++] = i;
        if (search_world(s, i + 1, rest - s->list[i].procs))
            return true;
        s->taken_count--;
    }
    return false;
}

bool world_size_matters(const struct job_spec *spec)
{
    return spec->kind == JOB_TRAIN && spec->train.reproducible == REPRODUCIBLE_WORLD;
}

size_t world_size_choose(const struct job_spec *spec, int64_t least, int64_t most, int64_t with,
                         struct placement_choice *list, size_t count)
{
    size_t enough = least > 1 ? (size_t)least : 1, all = most > 0 ? (size_t)most : 0;

    if (count > all && !world_size_matters(spec))
        count = all;
    if (count < enough || all < enough)
        return 0;
    if (!world_size_matters(spec))
        return count;
    /* shards is a power of two, so halving visits all its divisors, the largest world size first */
    struct placement_choice *copy = xcalloc(count, sizeof(*copy));
    struct world_search s = {.list = copy, .count = count, .most = all};
    bool found = false;

    memcpy(copy, list, count * sizeof(*copy));
    s.taken = xcalloc(count, sizeof(*s.taken));
    for (int64_t world = spec->train.shards; world > with && !found; world /= 2) {
        s.taken_count = 0;
        s.tries = TRIES;
        found = search_world(&s, 0, world - with) && s.taken_count >= enough;
    }
    for (size_t i = 0; found && i < s.taken_count; i++)
        list[i] = copy[s.taken[i]];
    free(s.taken);
    free(copy);
    return found ? s.taken_count : 0;
}

bool world_size_possible(const struct job_spec *spec, int64_t min, int64_t max)
{
    if (!world_size_matters(spec))
        return true;
    if (spec->procs != JOB_PROCS_NUMBER)
        return min <= spec->train.shards; /* each node has at least one process, and may have just one */
    for (int64_t nodes = min; nodes <= max && nodes <= spec->train.shards; nodes++)
        if (spec->train.shards % (nodes * spec->procs_per_node) == 0)
            return true;
    return false;
}
