#ifndef DDP_DAEMON_SUPERVISOR_OUTBOX_H
#define DDP_DAEMON_SUPERVISOR_OUTBOX_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Encoded reports that wait for an agent: at most OUTBOX_COUNT messages and OUTBOX_BYTES. If another report does not
 * fit, the oldest ones are dropped and counted, because a newer report is more useful. */
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

/* The reports in a file, one in each line, for the next supervisor of the job. An empty outbox writes no file. */
MUST_CHECK enum err_code outbox_save(const struct outbox *o, const char *path, struct err *e);
/* Appends the reports of the file, and removes it. A missing file has none; lines that are no reports are left out. */
MUST_CHECK enum err_code outbox_load(struct outbox *o, const char *path, struct err *e);

#endif
