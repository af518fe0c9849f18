#ifndef DDP_TRAINER_MEASURE_NETWORK_H
#define DDP_TRAINER_MEASURE_NETWORK_H

#include "trainer/trainer.h"

/* The part of `train.measure` that concerns the network: all-reduces between nodes.
 *
 * In each round the nodes are paired, and all pairs make all-reduces at the same time, each in a group of its own: by NCCL if the
 * devices have it, else over TCP. On GPUs a rank is paired with the rank of the same local number, because each GPU may have a
 * network card of its own. On CPUs one rank of each node takes part. In the next round each node has another partner. The rate
 * with the fastest partner counts, so the rate of a rank is low only if the rank is slow with all partners. */

struct network_rates { /* bytes a second that the rank sends; it receives as many. 0: it had no partner */
    double median, best;
};

/* Rounds until each node has been paired with every other node once. */
int network_rounds(int nodes);
/* The node's partner in a round; -1: it has none, because the number of nodes is odd. */
int network_partner(int node, int nodes, int round);

/* Collective. Ends the formation's communicator first, because a device has one at a time. slower: as in
 * measure_idle. */
MUST_CHECK enum err_code network_measure(struct trainer *t, double slower, struct network_rates *out,
                                         struct err *e);

#endif
