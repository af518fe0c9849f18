#include "daemon/supervisor/outbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/supervisor/protocol/control.h"

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

enum err_code outbox_save(const struct outbox *o, const char *path, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};

    for (size_t i = 0; i < o->count; i++) {
        const struct outbox_item *item = &o->items[(o->first + i) % OUTBOX_COUNT];
        buf_append(&text, item->text, item->len);
        buf_putc(&text, '\n');
    }
    return o->count ? file_write_renamed(path, text.data, text.len, 0600, false, e) : ERR_OK;
}

static bool line_is_report(const char *line, size_t len)
{
    CLEANUP(control_message_release) struct control_message m;
    struct err e;

    return control_decode(&m, line, len, &e) == ERR_OK && m.op == CONTROL_REPORT;
}

enum err_code outbox_load(struct outbox *o, const char *path, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};

    if (file_read(path, OUTBOX_BYTES + OUTBOX_COUNT, &text, e))
        return e->code == ERR_NOT_FOUND ? ERR_OK : e->code;
    for (const char *at = text.data ? text.data : "", *end = at + text.len, *next; at < end; at = next + 1) {
        next = memchr(at, '\n', (size_t)(end - at));
        if (!next)
            next = end;
        const size_t len = (size_t)(next - at);
        if (line_is_report(at, len))
            outbox_push(o, xasprintf("%.*s", (int)len, at), len);
    }
    return unlink(path) ? err_sys(e, errno, "remove %s", path) : ERR_OK;
}
