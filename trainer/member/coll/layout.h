#ifndef DDP_TRAINER_MEMBER_COLL_LAYOUT_H
#define DDP_TRAINER_MEMBER_COLL_LAYOUT_H

#include <stdbool.h>

#include "trainer/member/coll/coll.h"
#include "trainer/member/coll/listener.h"

/* Which rank is on which node. Nodes are numbered in the order of their lowest ranks, the ranks of one node
 * in the order of ranks. Two ranks share a node if they have the same node_rank and their unix sockets are in
 * the same directory. */
struct coll_layout {
    int world_size, rank;
    int nodes, node;   /* number of nodes; number of this rank's node */
    int locals, local; /* number of ranks on this node; this rank's local number */
    int rings;         /* number of rings across nodes: the number of ranks on the smallest node */
    bool aligned;      /* every node has the same number of ranks, a power of two, with consecutive numbers */
    int *node_of;      /* by rank */
    int *local_of;     /* by rank */
    int *node_size;    /* by node */
    int *first;        /* by node: index of its first rank in `ranks`; first[nodes] is world_size */
    int *ranks;        /* by (node, local) */
    struct coll_address *addresses; /* by rank */
};
MUST_CHECK enum err_code coll_layout_init(struct coll_layout *out, const struct coll_config *config,
                                          struct err *e);
void coll_layout_release(struct coll_layout *l);
static inline int coll_layout_rank(const struct coll_layout *l, int node, int local)
{
    return l->ranks[l->first[node] + local];
}

#endif
