/* The sum over all ranks of several nodes as one binary tree over the ranks. The ring's all-reduce starts
 * each chunk at another node, so it cannot keep the tree's order. Instead, every node gathers the arrays part
 * by part, and adds them up in the tree's order. If each node is a whole subtree, it sends the sum of its
 * ranks; otherwise it sends the arrays of all its ranks. Two nodes send as much as with the ring's sum, n
 * nodes n / 2 times as much. */
#include "trainer/member/coll/tree.h"
#include "trainer/member/coll/group.h"
#include "trainer/member/coll/ring.h"
#include "trainer/member/coll/shared_memory.h"
#include "trainer/member/coll/sum.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define PART 65536 /* floats of each array that are gathered at a time */

struct gather {
    struct coll_group *g;
    float *const *mine; /* the arrays that this node sends */
    int *first;         /* by node: index of its first array among all arrays; first[nodes] is their number */
    float **in;         /* by position in the tree: the array's place in g->gathered */
    int count;
    bool wanted;     /* this node needs the sum */
    size_t *offsets; /* by node: offset of its arrays in a part, in bytes; offsets[nodes] is the end */
};

static void gather_release(struct gather *a)
{
    free(a->first);
    free(a->in);
    free(a->offsets);
}

static void open_gather(struct gather *a, struct coll_group *g, float *const *mine)
{
    const struct coll_layout *l = &g->layout;

    *a = (struct gather){.g = g, .mine = mine, .count = l->aligned ? l->nodes : l->world_size};
    a->first = xcalloc((size_t)l->nodes + 1, sizeof(int));
    a->in = xcalloc((size_t)a->count, sizeof(float *));
    a->offsets = xcalloc((size_t)l->nodes + 1, sizeof(size_t));
    for (int n = 0; n <= l->nodes; n++)
        a->first[n] = n == l->nodes ? a->count : l->aligned ? n : l->first[n];
    if (!g->gathered)
        g->gathered = xmalloc((size_t)a->count * PART * sizeof(float));
}

/* Gathers one part of every array, in the order of nodes, and adds them up in the tree's order. */
static enum err_code reduce_part(struct gather *a, float *to, size_t at, size_t n, struct err *e)
{
    const struct coll_layout *l = &a->g->layout;
    float *own = a->g->gathered + (size_t)a->first[l->node] * n;

    for (int i = 0; i < a->first[l->node + 1] - a->first[l->node]; i++)
        memcpy(own + (size_t)i * n, a->mine[i] + at, n * sizeof(float));
    for (int node = 0; node <= l->nodes; node++)
        a->offsets[node] = (size_t)a->first[node] * n * sizeof(float);
    if (ring_allgather(a->g, (char *)a->g->gathered, a->offsets, e))
        return e->code;
    if (!a->wanted)
        return ERR_OK;
    for (int i = 0; i < a->count; i++)
        a->in[l->aligned ? i : l->ranks[i]] = a->g->gathered + (size_t)i * n;
    to += at;
    coll_sum_tree(a->in, a->count, &to, 1, 0, n);
    return ERR_OK;
}

enum err_code tree_allreduce(struct coll_group *g, const struct coll_array *array, size_t lo, size_t hi,
                             bool wanted, struct err *e)
{
    float *mine = array->maps[g->layout.local];
    bool one = g->layout.aligned || g->layout.locals == 1;
    CLEANUP(gather_release) struct gather a;

    open_gather(&a, g, one ? &mine : array->maps);
    a.wanted = wanted;
    if (g->layout.aligned && g->layout.locals > 1) {
        coll_sum_tree(array->maps, g->layout.locals, &mine, 1, lo, hi);
        g->bytes += (size_t)(g->layout.locals - 1) * (hi - lo) * sizeof(float);
    }
    for (size_t at = lo; at < hi; at += PART)
        if (reduce_part(&a, mine, at, hi - at < PART ? hi - at : PART, e))
            return e->code;
    return ERR_OK;
}
