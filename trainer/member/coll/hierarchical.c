/* Collectives over several nodes. All-reduce: the array is divided into as many slices as the smallest node
 * has ranks. On each node, local rank j adds up slice j of the node's ranks in rank order, takes the sum
 * around the j-th ring, and writes the result to the node's other ranks. The order of additions is fixed:
 * inside a node it is the order of ranks; between nodes, chunk c of a slice is added up from node c on around
 * the ring. The other collectives go through the first rank of each node.
 *
 * A call ends with a barrier on the node if a rank of the node may still be using the ring. A rank that has
 * finished must not leave before the barrier, because the other ranks would take the end of its connections
 * for its death. */
#include "trainer/member/coll/group.h"
#include "trainer/member/coll/half_calls.h"
#include "trainer/member/coll/hierarchical_parts.h"
#include "trainer/member/coll/pairs.h"
#include "trainer/member/coll/ring.h"
#include "trainer/member/coll/shared_memory.h"
#include "trainer/member/coll/shm.h"
#include "trainer/member/coll/sum.h"
#include "trainer/member/coll/tree.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Copies [lo, hi) of this rank's array to the arrays of the node's other ranks. */
static void slice_push(struct coll_group *g, const struct coll_array *array, size_t lo, size_t hi,
                       bool stream)
{
    int local = g->layout.local, count = 0;
    float **to = xmalloc((size_t)g->layout.locals * sizeof(*to));

    for (int i = 0; i < g->layout.locals; i++)
        if (i != local)
            to[count++] = array->maps[i];
    coll_sum(&array->maps[local], 1, to, count, lo, hi, stream);
    free(to);
}

static enum err_code reduce_slice(struct coll_group *g, const struct coll_array *array, size_t at,
                                  size_t count, struct err *e)
{
    int n = g->layout.locals, local = g->layout.local;
    bool stream = coll_streams(g, count);
    float *mine = array->maps[local];
    size_t lo, hi;

    coll_slice(at, count, g->layout.rings, local, &lo, &hi);
    /* The tree fixes the order of additions, so nothing can be added on the way around the ring. */
    if (g->tree) {
        if (tree_allreduce(g, array, lo, hi, true, e))
            return e->code;
        if (n > 1)
            slice_push(g, array, lo, hi, stream);
        return ERR_OK;
    }
    if (n > 1) {
        coll_sum(array->maps, n, &mine, 1, lo, hi, stream);
        g->bytes += (size_t)(n - 1) * (hi - lo) * sizeof(float);
    }
    if (ring_allreduce(g, mine + lo, hi - lo, DEVICE_F32, e))
        return e->code;
    if (n > 1)
        slice_push(g, array, lo, hi, stream);
    return ERR_OK;
}

static enum err_code hierarchical_allreduce(struct coll_group *g, const struct coll_array *array, size_t at,
                                            size_t count, struct err *e)
{
    if (g->shm && shared_memory_meet(g, array, at, count, e))
        return e->code;
    if (g->ring && reduce_slice(g, array, at, count, e))
        return e->code;
    return g->shm ? shm_barrier(g, e) : ERR_OK;
}

static bool node_leads(const struct coll_group *g)
{
    return g->layout.local == 0;
}

static enum err_code hierarchical_broadcast(struct coll_group *g, void *data, size_t size, int root,
                                            struct err *e)
{
    int node = g->layout.node_of[root];
    bool home = node == g->layout.node;

    if (g->shm && home && shared_memory_broadcast(g, data, size, g->layout.local_of[root], e))
        return e->code;
    if (node_leads(g) && ring_broadcast(g, data, size, node, e))
        return e->code;
    if (!g->shm)
        return ERR_OK;
    return home ? shm_barrier(g, e) : shared_memory_broadcast(g, data, size, 0, e);
}

/* Gathers the blocks of all ranks in `all`, in the order of (node, local rank). */
static enum err_code gather_blocks(struct coll_group *g, const void *mine, size_t size, char *all,
                                   struct err *e)
{
    const struct coll_layout *l = &g->layout;
    size_t *offsets = xmalloc(((size_t)l->nodes + 1) * sizeof(*offsets));
    enum err_code rc = ERR_OK;

    for (int n = 0; n < l->nodes; n++)
        offsets[n] = (size_t)l->first[n] * size;
    offsets[l->nodes] = (size_t)l->world_size * size;
    if (g->shm)
        rc = shared_memory_allgather(g, mine, size, all + offsets[l->node], e);
    else if (size && all + offsets[l->node] != mine)
        memcpy(all + offsets[l->node], mine, size);
    /* Only the first rank of each node talks to the other nodes, and then passes their blocks on. */
    if (!rc && node_leads(g))
        rc = ring_allgather(g, all, offsets, e);
    free(offsets);
    if (!rc && g->shm)
        rc = shared_memory_broadcast(g, all, (size_t)l->world_size * size, 0, e);
    return rc;
}

/* Whether ranks follow each other node by node, as they mostly do: then blocks arrive where they belong. */
static bool ranks_in_order(const struct coll_layout *l)
{
    for (int i = 0; i < l->world_size; i++)
        if (l->ranks[i] != i)
            return false;
    return true;
}

static enum err_code hierarchical_allgather(struct coll_group *g, const void *mine, size_t size, void *out,
                                            struct err *e)
{
    const struct coll_layout *l = &g->layout;
    enum err_code rc;
    char *all;

    if (ranks_in_order(l))
        return gather_blocks(g, mine, size, out, e);
    all = xmalloc((size_t)l->world_size * size);
    rc = gather_blocks(g, mine, size, all, e);
    for (int i = 0; !rc && i < l->world_size; i++)
        memcpy((char *)out + (size_t)l->ranks[i] * size, all + (size_t)i * size, size);
    free(all);
    return rc;
}

/* All pairs of ranks use their TCP connections, also two ranks of one node. */
static enum err_code hierarchical_exchange(struct coll_group *g, const void *mine, const size_t *offsets,
                                           void *out, struct err *e)
{
    struct shm_intent intent = {.kind = SHM_EXCHANGE, .size = offsets[g->layout.world_size]};

    BUG_ON(!atomic_load(&g->pairs));
    if (g->shm) {
        shm_begin(g);
        if (shm_meet(g, &intent, e))
            return e->code;
    }
    if (pairs_exchange(g, mine, offsets, out, e))
        return e->code;
    return g->shm ? shm_barrier(g, e) : ERR_OK;
}

static enum err_code hierarchical_barrier(struct coll_group *g, struct err *e)
{
    struct shm_intent intent = {.kind = SHM_BARRIER};
    char *all;
    size_t *offsets;
    enum err_code rc = ERR_OK;

    if (g->shm) {
        shm_begin(g);
        if (shm_meet(g, &intent, e))
            return e->code;
    }
    /* This node is complete. Its first rank now waits for the other nodes, by a gather of one byte each. */
    if (node_leads(g)) {
        all = xcalloc((size_t)g->layout.nodes, 1);
        offsets = xmalloc(((size_t)g->layout.nodes + 1) * sizeof(*offsets));
        for (int n = 0; n <= g->layout.nodes; n++)
            offsets[n] = (size_t)n;
        rc = ring_allgather(g, all, offsets, e);
        free(all);
        free(offsets);
    }
    return rc || !g->shm ? rc : shm_barrier(g, e);
}

const struct coll_ops coll_hierarchical_ops = {
    .name = "tcp",
    .overlaps = true,
    .allreduce = hierarchical_allreduce,
    .reduce_scatter = hierarchical_reduce_scatter,
    .allreduce_bf16 = half_allreduce,
    .reduce_scatter_bf16 = half_reduce_scatter,
    .gather = hierarchical_gather,
    .broadcast = hierarchical_broadcast,
    .allgather = hierarchical_allgather,
    .exchange = hierarchical_exchange,
    .barrier = hierarchical_barrier,
};
