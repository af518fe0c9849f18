#ifndef DDP_STORE_PACK_H
#define DDP_STORE_PACK_H

#include "base/buf.h"
#include "base/err.h"
#include "store/change.h"

/* Encodes records as bytes, to store them outside the database. Columns are identified by name: a reader of
 * another version skips columns that it does not know, and sets missing columns to zero. */

void pack_records(struct buf *out, const struct records *r); /* next_job and nodes are left out */
/* Release *out with records_release, whatever the result. DATA_LOSS: these bytes are not packed records. */
MUST_CHECK enum err_code pack_read(struct records *out, const void *data, size_t size, struct err *e);

#endif
