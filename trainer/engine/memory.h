#ifndef DDP_TRAINER_ENGINE_MEMORY_H
#define DDP_TRAINER_ENGINE_MEMORY_H

#include "trainer/engine/engine.h"

/* How a worker's memory is used, in bytes, and what the log says of it. */

struct memory_sizes {
    size_t parameters, gradients, optimizer, activations, workspace, batch; /* workspace: bf16 weights, too */
    size_t data;                                                            /* samples kept in memory */
    size_t snapshot;                                                        /* staged copies */
    size_t peers; /* arrays of this node's other ranks, which are shared but count as resident here, too */
    /* Of each parameter, as computed: parameters, gradients, moments, the arrays of the strategy, and the weights as bf16. And what
     * was allocated for all of that. */
    double per_parameter;
    size_t state;
    size_t program; /* resident memory before anything was opened */
    size_t sum;
};

/* Logs once how the device computes attention, and waits until it has prepared for it. Before memory_take. */
void attention_log(struct engine *n);
size_t memory_resident(void); /* resident memory of this process now; 0: unknown */
/* snapshot: bytes of staged copies; mapped_peers: ranks of this node whose arrays are mapped here. */
void memory_take(struct memory_sizes *s, const struct engine *n, size_t snapshot, int mapped_peers);
void memory_log(const struct memory_sizes *s, const struct engine *n, int rank);

#endif
