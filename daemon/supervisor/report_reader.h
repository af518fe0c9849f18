#ifndef DDP_DAEMON_SUPERVISOR_REPORT_READER_H
#define DDP_DAEMON_SUPERVISOR_REPORT_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "daemon/supervisor/protocol/spawn_report.h"

/* Reads a worker's report pipe: one JSON object a line. The integer `step` is the step, every other number is
 * a metric. null is a metric whose value is not a number; so is a bare NaN or Infinity, which Python writes
 * but JSON does not allow. Members of any other type are left out. */

#define REPORT_LINE_MAX (64 << 10)

struct report_reader {
    struct buf line;
    bool skipping; /* inside a line that is too long */
    int64_t bad;   /* lines dropped: too long, or not a JSON object */
};

/* Fills step and metrics only. False: the line is not a report. */
bool report_parse(const char *line, size_t len, struct spawn_report *out);
/* Cuts the bytes into lines and calls fn with each report. */
void report_feed(struct report_reader *r, const char *data, size_t len,
                 void (*fn)(void *ctx, const struct spawn_report *report), void *ctx);
void report_reader_release(struct report_reader *r);

#endif
