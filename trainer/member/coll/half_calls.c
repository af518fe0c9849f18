/* Sums as bf16. Each rank first rounds its floats in place, so the data is packed halves at the start of its memory, which the
 * calls below add up as those of shared_memory.c, hierarchical.c and hierarchical_parts.c add up floats. After the last barrier,
 * when no other rank reads or writes them any more, each rank makes floats of the halves that it needs.
 *
 * A rank's value is rounded once, the sum over a node once, and the partial sum at each hop of the ring. */
#include "trainer/member/coll/half_calls.h"
#include "trainer/member/coll/half.h"
#include "trainer/member/coll/hierarchical_parts.h"
#include "trainer/member/coll/ring.h"
#include "trainer/member/coll/ring_parts.h"
#include "trainer/member/coll/shared_memory.h"
#include "trainer/member/coll/shm.h"

#include "base/digest.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define HALF sizeof(uint16_t)

/* The data of each of this node's ranks. */
static void **half_maps(const struct coll_group *g, const struct coll_array *array, size_t at)
{
    void **maps = xcalloc((size_t)g->layout.locals, sizeof(*maps));

    for (int i = 0; i < g->layout.locals; i++)
        maps[i] = array->maps[i] + at;
    return maps;
}

static void half_copy(void *to, const void *from, size_t lo, size_t hi)
{
    memcpy((char *)to + lo * HALF, (const char *)from + lo * HALF, (hi - lo) * HALF);
}

static enum err_code half_meet(struct coll_group *g, uint64_t kind, const struct coll_array *array, size_t at,
                               uint64_t size, struct err *e)
{
    struct shm_intent intent = {kind, (uint64_t)(array - g->arrays), at, size};

    if (!g->shm)
        return ERR_OK;
    shm_begin(g);
    return shm_meet(g, &intent, e);
}

/* Adds up [lo, hi) of this node's ranks in this rank's data. */
static void node_sum(struct coll_group *g, void *const *maps, size_t lo, size_t hi)
{
    void *mine = maps[g->layout.local];

    if (g->layout.locals == 1)
        return;
    half_sum(maps, g->layout.locals, &mine, 1, lo, hi);
    g->bytes += (size_t)(g->layout.locals - 1) * (hi - lo) * HALF;
}

/* ---- all-reduce */

static enum err_code slice_sum(struct coll_group *g, void *const *maps, size_t count, struct err *e)
{
    const struct coll_layout *l = &g->layout;
    const int slices = l->nodes > 1 ? l->rings : l->locals;
    char *mine = maps[l->local];
    size_t lo, hi;

    if (l->nodes > 1 && !g->ring) /* another rank of the node has this slice */
        return ERR_OK;
    coll_slice(0, count, slices, l->local, &lo, &hi);
    node_sum(g, maps, lo, hi);
    if (l->nodes > 1 && ring_allreduce(g, mine + lo * HALF, hi - lo, DEVICE_BF16, e))
        return e->code;
    for (int i = 0; i < l->locals; i++)
        if (i != l->local)
            half_copy(maps[i], mine, lo, hi);
    return ERR_OK;
}

enum err_code half_allreduce(struct coll_group *g, const struct coll_array *array, size_t at, size_t count,
                             struct err *e)
{
    void **maps = half_maps(g, array, at), *mine = maps[g->layout.local];
    enum err_code rc;

    BUG_ON(g->tree);
    half_narrow(mine, count);
    rc = half_meet(g, SHM_ALLREDUCE_BF16, array, at, count, e);
    if (!rc)
        rc = slice_sum(g, maps, count, e);
    if (!rc && g->shm)
        rc = shm_barrier(g, e);
    if (!rc)
        half_widen(mine, 0, count);
    free(maps);
    return rc;
}

/* ---- reduce-scatter */

static enum err_code parts_sum(struct coll_group *g, void *const *maps, const size_t *offsets, struct err *e)
{
    const struct coll_layout *l = &g->layout;
    CLEANUP(part_slices_release) struct part_slices p = {0};

    if (l->nodes == 1) {
        node_sum(g, maps, offsets[l->rank], offsets[l->rank + 1]);
        return ERR_OK;
    }
    if (!g->ring)
        return ERR_OK;
    part_slices_plan(&p, g, 0, offsets, offsets + 1);
    for (int i = 0; i < l->world_size; i++)
        node_sum(g, maps, p.ranges[i].lo, p.ranges[i].hi);
    if (ring_reduce_scatter(g, maps[l->local], &p.chunks, DEVICE_BF16, e))
        return e->code;
    for (int i = 0; i < l->locals; i++) {
        const struct ring_range *r = &p.ranges[l->first[l->node] + i];

        if (i != l->local)
            half_copy(maps[i], maps[l->local], r->lo, r->hi);
    }
    return ERR_OK;
}

enum err_code half_reduce_scatter(struct coll_group *g, const struct coll_array *array, size_t at,
                                  const size_t *offsets, struct err *e)
{
    const struct coll_layout *l = &g->layout;
    const uint64_t digest = digest64(0, offsets, ((size_t)l->world_size + 1) * sizeof(*offsets));
    void **maps = half_maps(g, array, at), *mine = maps[l->local];
    enum err_code rc;

    BUG_ON(g->tree);
    half_narrow(mine, offsets[l->world_size]);
    rc = half_meet(g, SHM_SCATTER_BF16, array, at, digest, e);
    if (!rc)
        rc = parts_sum(g, maps, offsets, e);
    if (!rc && g->shm)
        rc = shm_barrier(g, e);
    if (!rc)
        half_widen(mine, offsets[l->rank], offsets[l->rank + 1]);
    free(maps);
    return rc;
}
