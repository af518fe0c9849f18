#ifndef DDP_CLIENT_RUN_NODELIST_H
#define DDP_CLIENT_RUN_NODELIST_H

#include <stdint.h>

#include "base/err.h"

/* The short forms in which Slurm writes lists. Pure. */

/* "box[1-3,07],gpu5" -> box1 box2 box3 box07 gpu5, in the order written; several brackets a name multiply,
 * the last fastest. A NULL-terminated list for strv_free. INVALID_ARGUMENT shows what could not be read. */
MUST_CHECK enum err_code nodelist_expand(const char *text, char ***nodes, struct err *e);

/* What node number `node` has in "4(x2),1", tasks or CPUs a node: 4 for 0 and 1, 1 for 2; -1 where the list
 * is shorter or no such list. */
int64_t nodelist_count_at(const char *text, int64_t node);

#endif
