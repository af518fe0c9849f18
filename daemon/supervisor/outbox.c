#include "daemon/supervisor/outbox.h"

#include <stdlib.h>

void outbox_push(struct outbox *o, char *text, size_t len)
{
    while (o->count && (o->count == OUTBOX_COUNT || o->bytes + len > OUTBOX_BYTES)) {
        outbox_pop(o);
        o->dropped++;
    }
    o->items[(o->first + o->count++) % OUTBOX_COUNT] = (struct outbox_item){text, len};
    o->bytes += len;
}

const struct outbox_item *outbox_first(const struct outbox *o)
{
    return o->count ? &o->items[o->first] : NULL;
}

void outbox_pop(struct outbox *o)
{
    o->bytes -= o->items[o->first].len;
    free(o->items[o->first].text);
    o->first = (o->first + 1) % OUTBOX_COUNT;
    o->count--;
}

void outbox_release(struct outbox *o)
{
    while (o->count)
        outbox_pop(o);
}
