#include "trainer/parameters.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/gather_cut.h"

/* ---- pieces */

/* Lanes end where a rank's part ends. */
static void gather_plan(struct gather *g, size_t floats, int world)
{
    g->count = gather_cut(floats, g->lanes, g->parts[world / 2], &g->cuts);
    g->packed_cuts = xcalloc(GATHER_LANES * (g->count + 1), sizeof(*g->packed_cuts));
}

void parameters_open(struct trainer *t)
{
    struct engine *n = &t->engine;
    struct gather *g = &t->gather;
    const int world = t->formation.world_size;
    parameters_close(t);
    if (!n->optim->part || world == 1)
        return;
    g->parts = xcalloc((size_t)world + 1, sizeof(*g->parts));
    g->lanes = sync_gather_lanes(t->formation.sync);
    (void)engine_divide(n, world, g->parts);
    if (sync_gathers_beside(t->formation.sync))
        gather_plan(g, n->model->count, world);
    const size_t cuts = g->count ? g->lanes * (g->count + 1) : 0;
    t->packs = packed_open(&t->packed, n, t->formation.rank, world, g->cuts, cuts);
    for (size_t i = 0; t->packs && i < cuts; i++)
        g->packed_cuts[i] = packed_at(&t->packed, g->cuts[i]);
}

void parameters_close(struct trainer *t)
{
    packed_release(&t->packed);
    t->packs = false;
    t->engine.await = NULL;
    free(t->gather.parts);
    free(t->gather.cuts);
    free(t->gather.packed_cuts);
    t->gather = (struct gather){0};
}

/* ---- the exchange */

/* Waits for the first `pieces`. */
static void gather_bring(struct trainer *t, size_t pieces)
{
    struct gather *g = &t->gather;
    struct engine *n = &t->engine;
    if (!n->await || pieces <= g->arrived)
        return;
    const int64_t began = clock_mono_ns();
    if (sync_await_pieces(t->formation.sync, pieces, &g->error)) {
        n->await = NULL;
        return;
    }
    t->interval.exposed_ns += clock_mono_ns() - began;
    for (; g->arrived < pieces; g->arrived++)
        for (size_t l = 0; l < g->lanes && g->packed; l++) {
            const size_t *lane = g->cuts + l * (g->count + 1) + g->arrived;
            packed_take(&t->packed, n, lane[0], lane[1]);
        }
    if (g->arrived == g->count)
        n->await = NULL;
}

/* engine.await: the forward pass is about to read parameters below `end`. */
static void parameters_needed(void *arg, size_t end)
{
    struct trainer *t = arg;
    const struct gather *g = &t->gather;
    size_t pieces = g->arrived;
    for (size_t l = 0; l < g->lanes; l++) {
        const size_t *lane = g->cuts + l * (g->count + 1);
        while (pieces < g->count && lane[pieces] < end && lane[pieces] < lane[g->count])
            pieces++;
    }
    gather_bring(t, pieces);
}

static enum err_code exchange_at_once(struct trainer *t, bool packed, struct err *e)
{
    struct coll_group *group = t->formation.group;
    if (!packed)
        return sync_gather(t->formation.sync, e);
    if (coll_gather(group, t->engine.grads.data, t->packed.offsets, e) || coll_join(group, e))
        return e->code;
    packed_take(&t->packed, &t->engine, 0, t->engine.model->count);
    return ERR_OK;
}

enum err_code parameters_exchange(struct trainer *t, struct err *e)
{
    struct engine *n = &t->engine;
    struct gather *g = &t->gather;
    const bool compared = (n->step + 1) % t->spec->log_every == 0, packed = t->packs && !compared;
    if (!g->parts)
        return ERR_OK;
    if (packed)
        packed_put(&t->packed, n);
    if ((!g->count || compared) && exchange_at_once(t, packed, e))
        return e->code;
    n->narrowed |= packed;
    n->partial = packed;
    if (!g->count || compared)
        return ERR_OK;
    g->packed = packed;
    g->arrived = 0;
    sync_gather_pieces(t->formation.sync,
                       &(struct sync_pieces){.array = packed ? n->grads.data : n->params.data,
                                             .parts = packed ? t->packed.offsets : g->parts,
                                             .cuts = packed ? g->packed_cuts : g->cuts,
                                             .lanes = g->lanes,
                                             .count = g->count});
    n->await = parameters_needed;
    n->await_arg = t;
    return ERR_OK;
}

enum err_code parameters_await(struct trainer *t, struct err *e)
{
    gather_bring(t, t->gather.count);
    if (t->gather.error.code)
        *e = t->gather.error;
    return t->gather.error.code;
}

enum err_code parameters_complete(struct trainer *t, struct err *e)
{
    if (parameters_await(t, e))
        return e->code;
    if (!t->engine.partial)
        return ERR_OK;
    if (sync_gather(t->formation.sync, e))
        return e->code;
    t->engine.partial = false;
    return ERR_OK;
}
