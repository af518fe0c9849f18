#include "trainer/member/coll/layout.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static size_t directory_length(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (size_t)(slash - path) : 0;
}

static bool same_node(const struct coll_config *c, const struct coll_address *a, int i, int j)
{
    size_t n = directory_length(a[i].path);

    if (c->peers[i].node_rank != c->peers[j].node_rank || !a[i].path[0] || !a[j].path[0])
        return false;
    return n == directory_length(a[j].path) && !memcmp(a[i].path, a[j].path, n);
}

static void number_nodes(struct coll_layout *l, const struct coll_config *c)
{
    for (int r = 0; r < l->world_size; r++) {
        int q = 0;

        while (q < r && !same_node(c, l->addresses, q, r))
            q++;
        l->node_of[r] = q < r ? l->node_of[q] : l->nodes++;
        l->local_of[r] = l->node_size[l->node_of[r]]++;
    }
}

static void number_ranks(struct coll_layout *l)
{
    l->rings = l->world_size;
    for (int n = 0, at = 0; n < l->nodes; at += l->node_size[n++]) {
        l->first[n] = at;
        if (l->node_size[n] < l->rings)
            l->rings = l->node_size[n];
    }
    l->first[l->nodes] = l->world_size;
    for (int r = 0; r < l->world_size; r++)
        l->ranks[l->first[l->node_of[r]] + l->local_of[r]] = r;
    l->node = l->node_of[l->rank];
    l->local = l->local_of[l->rank];
    l->locals = l->node_size[l->node];
}

static bool is_aligned(const struct coll_layout *l)
{
    int each = l->node_size[0];

    for (int n = 0; n < l->nodes; n++)
        if (l->node_size[n] != each)
            return false;
    for (int r = 0; r < l->world_size; r++)
        if (l->node_of[r] != r / each)
            return false;
    return (each & (each - 1)) == 0;
}

enum err_code coll_layout_init(struct coll_layout *out, const struct coll_config *c, struct err *e)
{
    size_t n = (size_t)c->world_size;
    struct coll_layout l = {.world_size = c->world_size, .rank = c->rank};

    l.addresses = xcalloc(n, sizeof(*l.addresses));
    for (int r = 0; r < c->world_size; r++) {
        const struct coll_peer *p = &c->peers[r];

        if (p->rank != r) {
            free(l.addresses);
            return err_set(e, ERR_INVALID_ARGUMENT, "peer %d has rank %d, peers must come by rank", r,
                           p->rank);
        }
        /* A world of one connects to nobody, whatever its address is. */
        if (c->world_size > 1 && coll_address_decode(&l.addresses[r], p->address, p->address_size, e)) {
            free(l.addresses);
            return err_wrap(e, "address of rank %d", r);
        }
    }
    l.node_of = xcalloc(n, sizeof(int));
    l.local_of = xcalloc(n, sizeof(int));
    l.node_size = xcalloc(n, sizeof(int));
    l.first = xcalloc(n + 1, sizeof(int));
    l.ranks = xcalloc(n, sizeof(int));
    number_nodes(&l, c);
    number_ranks(&l);
    l.aligned = is_aligned(&l);
    *out = l;
    return ERR_OK;
}

void coll_layout_release(struct coll_layout *l)
{
    free(l->node_of);
    free(l->local_of);
    free(l->node_size);
    free(l->first);
    free(l->ranks);
    free(l->addresses);
    memset(l, 0, sizeof(*l));
}
