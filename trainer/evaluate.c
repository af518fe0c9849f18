#include "trainer/evaluate.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/engine/evaluate.h"
#include "trainer/parameters.h"

enum err_code trainer_evaluate(struct trainer *t, struct err *e)
{
    struct engine *n = &t->engine;
    int mine = n->shards, all = n->sampler.world_size;
    int64_t began = clock_mono_ns();
    struct coll_stats before, after;
    coll_get_stats(t->formation.group, &before);
    if (sync_join(t->formation.sync, e) || parameters_complete(t, e))
        return e->code;
    struct evaluate_counts *counts = xcalloc((size_t)(all + mine), sizeof(*counts));
    enum err_code code = evaluate_shards(n, sync_shared(t->formation.sync), counts + all, e);
    if (!code)
        code = coll_allgather(t->formation.group, counts + all, (size_t)mine * sizeof(*counts), counts, e);
    if (!code)
        code = evaluate_take(n, counts, all, e);
    free(counts);
    if (code)
        return code;
    /* Neither the time of the evaluation nor the waiting in it counts as steps. */
    coll_get_stats(t->formation.group, &after);
    t->interval.since_ns += clock_mono_ns() - began;
    t->interval.wait_ns += after.wait_ns - before.wait_ns;
    t->last_eval_ms = clock_boot_ms();
    return ERR_OK;
}
