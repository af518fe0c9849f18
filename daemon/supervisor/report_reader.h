#ifndef DDP_DAEMON_SUPERVISOR_REPORT_READER_H
#define DDP_DAEMON_SUPERVISOR_REPORT_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "daemon/supervisor/protocol/control.h"

/* A worker's report pipe: one JSON object a line; `step` is an integer, every other number a metric, null a
 * metric that is not a number (so is a bare NaN or Infinity, which Python writes); anything else in the
 * object is left out. */

#define REPORT_LINE_MAX (64 << 10)

struct report_reader {
    struct buf line;
    bool skipping; /* inside a line that grew too long */
    int64_t bad;   /* lines dropped: too long, or not such an object */
};

/* False: not a report. Fills step and metrics only. */
bool report_parse(const char *line, size_t len, struct spawn_report *out);
/* Cuts data into lines; fn gets each good one. */
void report_feed(struct report_reader *r, const char *data, size_t len,
                 void (*fn)(void *ctx, const struct spawn_report *report), void *ctx);
void report_reader_release(struct report_reader *r);

/* Encoded messages that wait for an agent: at most OUTBOX_BYTES, the oldest go first. */
#define OUTBOX_BYTES (256 << 10)
#define OUTBOX_COUNT 1024
struct outbox {
    struct outbox_item {
        char *text;
        size_t len;
    } items[OUTBOX_COUNT];
    size_t first, count, bytes;
    int64_t dropped;
};
void outbox_push(struct outbox *o, char *text, size_t len);     /* takes text */
const struct outbox_item *outbox_first(const struct outbox *o); /* NULL: empty */
void outbox_pop(struct outbox *o);
void outbox_release(struct outbox *o);

#endif
