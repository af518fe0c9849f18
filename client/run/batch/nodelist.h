#ifndef DDP_CLIENT_RUN_BATCH_NODELIST_H
#define DDP_CLIENT_RUN_BATCH_NODELIST_H

#include <stdint.h>

#include "base/err.h"

/* The compact notations in which Slurm writes lists. No input or output. */

/* "box[1-3,07],gpu5" gives box1 box2 box3 box07 gpu5, in the order written. Several brackets in a name give all
 * combinations; the last bracket varies fastest. A NULL-terminated list for strv_free. INVALID_ARGUMENT: the
 * message shows the text. */
MUST_CHECK enum err_code nodelist_expand(const char *text, char ***nodes, struct err *e);

/* The count of node number `node` in a list of tasks or CPUs per node: in "4(x2),1" 4 for nodes 0 and 1, and 1 for
 * node 2. -1: the list is shorter, or invalid. */
int64_t nodelist_count_at(const char *text, int64_t node);

#endif
