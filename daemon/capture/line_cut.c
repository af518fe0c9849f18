#include "daemon/capture/line_cut.h"

#include <string.h>

/* Returns the length of the escape sequence at `at`. */
static size_t escape_length(const char *at, const char *end)
{
    const char *p = at + 1;

    if (p < end && *p == '[') {
        for (p++; p < end && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x40; p++)
            ;
    }
    return (size_t)(p < end ? p + 1 - at : end - at);
}

static size_t line_clean(char *line, size_t len)
{
    const char *end = line + len;
    char *to = line;

    for (const char *at = line; at < end;) {
        if (*at == 0x1b) {
            at += escape_length(at, end);
            continue;
        }
        *to++ = (unsigned char)*at < 0x20 || *at == 0x7f ? ' ' : *at;
        at++;
    }
    *to = 0;
    return (size_t)(to - line);
}

void line_cut_end(struct line_cut *c, void (*fn)(void *ctx, char *line, size_t len), void *ctx)
{
    if (c->line.len) {
        const size_t len = line_clean(c->line.data, c->line.len);
        fn(ctx, c->line.data, len);
    }
    buf_clear(&c->line);
    c->in_rest = false;
}

/* In one pass. A search for '\n' alone would go over the rest of the data again for each line that ends with '\r'. */
static const char *line_end_find(const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (data[i] == '\n' || data[i] == '\r')
            return data + i;
    return NULL;
}

void line_cut_feed(struct line_cut *c, const char *data, size_t len,
                   void (*fn)(void *ctx, char *line, size_t len), void *ctx)
{
    while (len) {
        const char *end = line_end_find(data, len);
        const size_t part = end ? (size_t)(end - data) : len;
        const size_t room = LINE_CUT_MOST - c->line.len;

        if (!c->in_rest)
            buf_append(&c->line, data, part < room ? part : room);
        c->in_rest |= part > room;
        if (!end)
            return;
        line_cut_end(c, fn, ctx);
        data += part + 1;
        len -= part + 1;
    }
}

void line_cut_drop(struct line_cut *c)
{
    buf_clear(&c->line);
    c->in_rest = true;
}

void line_cut_release(struct line_cut *c)
{
    buf_release(&c->line);
}
