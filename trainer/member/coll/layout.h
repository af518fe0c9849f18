#ifndef DDP_TRAINER_MEMBER_COLL_LAYOUT_H
#define DDP_TRAINER_MEMBER_COLL_LAYOUT_H

#include <stdbool.h>

#include "trainer/member/coll/coll.h"
#include "trainer/member/coll/listener.h"

/* Which rank is on which node. Nodes are numbered by their lowest rank; ranks of one node by rank. Two ranks
 * share a node when their node_rank is the same and their unix sockets are in the same directory. */
struct coll_layout {
    int world_size, rank;
    int nodes, node;   /* count; mine */
    int locals, local; /* ranks on my node; my place among them */
    int rings;         /* ranks of each node that hold a ring across nodes: of the smallest node, all */
    bool aligned;      /* nodes hold as many ranks each, a power of two of them, one after the other */
    int *node_of;      /* by rank */
    int *local_of;     /* by rank */
    int *node_size;    /* by node */
    int *first;        /* by node: where its ranks start in `ranks` */
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
