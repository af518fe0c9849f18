#ifndef DDP_CLIENT_TEXT_RANK_LIST_H
#define DDP_CLIENT_TEXT_RANK_LIST_H

#include <stddef.h>

#include "base/buf.h"

/* Appends "rank 3" or "ranks 0-7, 9, 12". The ranks are in ascending order; three neighbours or more are a range. */
void rank_list_put(struct buf *out, const int *ranks, size_t count);

#endif
