#ifndef DDP_CLIENT_TOP_TOP_JOB_VIEW_H
#define DDP_CLIENT_TOP_TOP_JOB_VIEW_H

#include "client/top/top_lines.h"
#include "client/top/top_model.h"

/* The page of one job: its status and ranks, why it hangs or waits, the curve of its loss, the last lines of its log. rows: how many
 * lines it may take, 0: as many as it needs. The curve and the log share what the status leaves. */
void top_job_draw(const struct top_frame *f, const struct top_job *job, size_t rows, struct buf *out);

#endif
