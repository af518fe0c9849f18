#ifndef DDP_DAEMON_SUPERVISOR_REPORT_READER_H
#define DDP_DAEMON_SUPERVISOR_REPORT_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Cuts the bytes of a worker's report pipe into lines and checks each (base/worker/metric.h). A valid line is passed on
 * unchanged. Empty lines are skipped. Zero-initialise. One thread. */

struct report_reader {
    struct buf line;
    bool skipping;          /* inside a line that is too long */
    int64_t taken;          /* number of valid lines */
    int64_t refused;        /* lines */
    struct err first_error; /* why the first of them was refused */
};

/* Calls fn with each valid line, without its '\n'; the line is borrowed for the call. */
void report_feed(struct report_reader *r, const char *data, size_t len,
                 void (*fn)(void *ctx, const char *line), void *ctx);
void report_reader_release(struct report_reader *r);

#endif
