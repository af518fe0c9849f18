#ifndef DDP_DAEMON_SUPERVISOR_OUTBOX_H
#define DDP_DAEMON_SUPERVISOR_OUTBOX_H

#include <stddef.h>
#include <stdint.h>

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

#endif
