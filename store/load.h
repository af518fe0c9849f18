#ifndef DDP_STORE_LOAD_H
#define DDP_STORE_LOAD_H

#include "store/store_state.h"

/* Reading rows into records. Inside store/ only. */

struct table;
/* Appends the rows that `where` selects to a growing array of records, *(record **)array_at; parameter is ?1.
 * A record that was read only in part counts too, so that its release frees the part. */
MUST_CHECK enum err_code load_rows(struct store *s, const struct table *t, const char *where,
                                   int64_t parameter, void *array_at, size_t *count, struct err *e);

#endif
