#ifndef DDP_CLIENT_EXPORT_EXPORT_RUN_H
#define DDP_CLIENT_EXPORT_EXPORT_RUN_H

#include "base/buf.h"
#include "base/err.h"
#include "client/export/export_points.h"

/* A run directory of TensorBoard for one job: DIR/<job>-<name>/events.out.tfevents.ddp. The directory is made with the first
 * point. An earlier export of the job to the same place is replaced. Every write ends with a whole record, and a failed one is
 * taken back, so the file is good whenever the export ends. */
struct export_run {
    char *dir, *path; /* NULL: not opened */
    int fd;           /* -1: there was no point yet */
    int64_t size;     /* of the whole records */
    struct buf records;
};

/* Creates DIR itself, so that a place that cannot be written is an error before anything is fetched. */
MUST_CHECK enum err_code export_run_open(struct export_run *run, const char *dir, int64_t job,
                                         const char *name, struct err *e);
/* Writes the points. The tag of rank 0 is the metric's name, "loss"; of other ranks it is "loss/rank 3". */
MUST_CHECK enum err_code export_run_put(struct export_run *run, const struct export_points *points,
                                        struct err *e);
void export_run_close(struct export_run *run); /* also of a zeroed one */

#endif
