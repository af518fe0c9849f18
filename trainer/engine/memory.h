#ifndef DDP_TRAINER_ENGINE_MEMORY_H
#define DDP_TRAINER_ENGINE_MEMORY_H

#include "trainer/engine/engine.h"

/* What a worker's memory goes to, in bytes. */

struct memory_sizes {
    size_t parameters, gradients, optimizer, activations, workspace, batch;
    size_t data;     /* samples kept in memory */
    size_t snapshot; /* staged copies */
    size_t peers;    /* arrays of this node's other ranks: shared, resident in each */
    size_t program;  /* resident before anything was opened */
    size_t sum;
};

size_t memory_resident(void); /* of this process now; 0 where it cannot be told */
/* snapshot: bytes of staged copies; mapped_peers: ranks of this node whose arrays are mapped here. */
void memory_take(struct memory_sizes *s, const struct engine *n, size_t snapshot, int mapped_peers);
void memory_log(const struct memory_sizes *s, const struct engine *n, int rank);

#endif
