#ifndef DDP_DAEMON_COORDINATOR_CORE_NODES_INVENTORY_H
#define DDP_DAEMON_COORDINATOR_CORE_NODES_INVENTORY_H

#include "daemon/coordinator/core/model.h"

/* A node's GPUs, as structs (node->gpus, owned by the node) and as JSON in its record (node->r.gpus). */
struct core_gpu *inventory_find(const struct node *node, const char *uuid); /* or NULL */
int inventory_holders(const struct node *node, const char *uuid); /* living workers that hold the GPU */
void inventory_set(struct node *node, const struct core_gpu *gpus, size_t count); /* copies */
/* Takes the news of GPUs that the node has. Returns true if a GPU's health changed. */
bool inventory_update(struct node *node, const struct core_gpu *gpus, size_t count);
void inventory_free(struct node *node);
char *inventory_print(const struct node *node); /* the caller frees */
void inventory_parse(struct node *node);        /* reads node->r.gpus */

#endif
