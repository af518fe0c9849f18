#ifndef DDP_TRAINER_MEASURE_NETWORK_H
#define DDP_TRAINER_MEASURE_NETWORK_H

#include "trainer/node_pair.h"
#include "trainer/trainer.h"

/* The part of `train.measure` that concerns the network: all-reduces between nodes.
 *
 * In each round the nodes are paired, and all pairs make all-reduces at the same time, each in a group of its own: by NCCL if the
 * devices have it, else over TCP. On GPUs a rank is paired with the rank of the same local number, because each GPU may have a
 * network card of its own. On CPUs one rank of each node takes part. In the next round each node has another partner. */

#define NETWORK_PARTNERS 4 /* at most: so many partners of a node tell whether the node is slow */

struct network_partner {
    int rank;
    struct pair_rate rate; /* 0: it could not be measured */
    char why[352];
};
struct network_partners {
    struct network_partner list[NETWORK_PARTNERS];
    int count;
};

/* Rounds until each node has been paired with every other node once. */
int network_rounds(int nodes);
/* The node's partner in a round; -1: it has none, because the number of nodes is odd. */
int network_partner(int node, int nodes, int round);

/* Whether other ranks may have sent this. Also ends each `why`. */
MUST_CHECK enum err_code network_check_partners(struct network_partners *all, int ranks, struct err *e);
/* Collective. Ends the device's collectives of the formation first, because a device has one communicator at a time. A pair that
 * fails does not end the other pairs, nor later rounds. If the rounds take far longer than `measure_ms`, the last ones are left out.
 * slower: as in measure_idle. ABORTED: the generation is over. */
MUST_CHECK enum err_code network_measure(struct trainer *t, double slower, struct network_partners *out,
                                         struct err *e);

#endif
