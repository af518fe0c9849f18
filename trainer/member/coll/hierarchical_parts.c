/* Calls by parts over several nodes. The part of each rank is divided into as many slices as the smallest node has ranks; local
 * rank j of each node takes slice j of all parts around the j-th ring. The chunk of a node is the slices of its ranks' parts.
 *
 * Reduce-scatter: local rank j adds up the node's arrays in its own array, the ring adds up the nodes, and what belongs to
 * another rank of the node is copied there. Gather: the reverse. Nobody else touches slice j meanwhile, so a call needs only
 * the meeting at its start, after which all data is there, and the barrier at its end. */
#include "trainer/member/coll/hierarchical_parts.h"
#include "trainer/member/coll/shared_memory.h"
#include "trainer/member/coll/shm.h"
#include "trainer/member/coll/sum.h"
#include "trainer/member/coll/tree.h"

#include "base/mem.h"

#include <stdlib.h>

void part_slices_release(struct part_slices *p)
{
    free(p->ranges);
}

void part_slices_plan(struct part_slices *p, const struct coll_group *g, size_t at, const size_t *from,
                      const size_t *to)
{
    const struct coll_layout *l = &g->layout;

    p->ranges = xcalloc((size_t)l->world_size, sizeof(*p->ranges));
    for (int i = 0; i < l->world_size; i++) {
        const size_t lo = from[l->ranks[i]], hi = to[l->ranks[i]];

        coll_slice(at + lo, hi - lo, l->rings, l->local, &p->ranges[i].lo, &p->ranges[i].hi);
    }
    p->chunks = (struct ring_chunks){
        .ranges = p->ranges,
        .first = l->first,
        .digest = coll_parts_digest(g, from, to),
    };
}

/* By the tree nothing can be added on the way, so every node gets the data of all, and adds up what its ranks own. */
static enum err_code slices_sum_tree(struct coll_group *g, const struct coll_array *array,
                                     const struct part_slices *p, struct err *e)
{
    const struct coll_layout *l = &g->layout;

    for (int n = 0; n < l->nodes; n++)
        for (int i = l->first[n]; i < l->first[n + 1]; i++)
            if (tree_allreduce(g, array, p->ranges[i].lo, p->ranges[i].hi, n == l->node, e))
                return e->code;
    return ERR_OK;
}

static enum err_code slices_sum(struct coll_group *g, const struct coll_array *array,
                                const struct part_slices *p, bool stream, struct err *e)
{
    const struct coll_layout *l = &g->layout;
    float *mine = array->maps[l->local];

    for (int i = 0; i < l->world_size && l->locals > 1; i++) {
        const struct ring_range *r = &p->ranges[i];

        coll_sum(array->maps, l->locals, &mine, 1, r->lo, r->hi, stream);
        g->bytes += (size_t)(l->locals - 1) * (r->hi - r->lo) * sizeof(float);
    }
    return ring_reduce_scatter(g, mine, &p->chunks, DEVICE_F32, e);
}

/* Copies the slices of this node's parts between this rank's array and those of their owners. */
static void slices_pass(struct coll_group *g, const struct coll_array *array, const struct part_slices *p,
                        bool to_owner, bool stream)
{
    const struct coll_layout *l = &g->layout;

    for (int i = 0; i < l->locals; i++) {
        const struct ring_range *r = &p->ranges[l->first[l->node] + i];

        if (i == l->local)
            continue;
        coll_sum(&array->maps[to_owner ? l->local : i], 1, &array->maps[to_owner ? i : l->local], 1, r->lo,
                 r->hi, stream);
        if (!to_owner)
            g->bytes += (r->hi - r->lo) * sizeof(float);
    }
}

static enum err_code scatter_slices(struct coll_group *g, const struct coll_array *array, size_t at,
                                    const size_t *offsets, struct err *e)
{
    const bool stream = coll_streams(g, offsets[g->layout.world_size]);
    CLEANUP(part_slices_release) struct part_slices p;

    part_slices_plan(&p, g, at, offsets, offsets + 1);
    if (g->tree ? slices_sum_tree(g, array, &p, e) : slices_sum(g, array, &p, stream, e))
        return e->code;
    slices_pass(g, array, &p, true, stream);
    return ERR_OK;
}

static enum err_code gather_slices(struct coll_group *g, const struct coll_array *array, size_t at,
                                   const size_t *from, const size_t *to, struct err *e)
{
    const struct coll_layout *l = &g->layout;
    const bool stream = coll_streams(g, coll_parts_floats(g, from, to));
    CLEANUP(part_slices_release) struct part_slices p;

    part_slices_plan(&p, g, at, from, to);
    slices_pass(g, array, &p, false, stream);
    if (ring_gather(g, array->maps[l->local], &p.chunks, e))
        return e->code;
    for (int other = 0; other < l->locals; other++)
        for (int i = 0; i < l->world_size && other != l->local; i++)
            coll_sum(&array->maps[l->local], 1, &array->maps[other], 1, p.ranges[i].lo, p.ranges[i].hi,
                     stream);
    return ERR_OK;
}

enum err_code hierarchical_reduce_scatter(struct coll_group *g, const struct coll_array *array, size_t at,
                                          const size_t *offsets, struct err *e)
{
    if (g->shm && shared_memory_meet_parts(g, SHM_SCATTER, array, at, offsets, offsets + 1, e))
        return e->code;
    if (g->ring && scatter_slices(g, array, at, offsets, e))
        return e->code;
    return g->shm ? shm_barrier(g, e) : ERR_OK;
}

enum err_code hierarchical_gather(struct coll_group *g, const struct coll_array *array, size_t at,
                                  const size_t *from, const size_t *to, struct err *e)
{
    if (g->shm && shared_memory_meet_parts(g, SHM_GATHER, array, at, from, to, e))
        return e->code;
    if (g->ring && gather_slices(g, array, at, from, to, e))
        return e->code;
    return g->shm ? shm_barrier(g, e) : ERR_OK;
}
