#ifndef DDP_CLIENT_RANK_OUTPUT_H
#define DDP_CLIENT_RANK_OUTPUT_H

#include "base/buf.h"
#include "client/link.h"

/* Appends what one rank of a job that has ended wrote to stdout. CANCELLED: the user has interrupted it (client/interrupts.h). */
MUST_CHECK enum err_code rank_output_read(struct link *link, int64_t job, int rank, struct buf *out,
                                          struct err *e);

#endif
