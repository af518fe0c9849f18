#include "base/buf.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void buf_grow(struct buf *b, size_t extra)
{
    size_t need = b->len + extra + 1;

    if (need <= b->cap)
        return;
    b->cap = need < 2 * b->cap ? 2 * b->cap : need < 64 ? 64 : need;
    b->data = xrealloc(b->data, b->cap);
}

void buf_reserve(struct buf *b, size_t extra)
{
    size_t need = b->len + extra + 1;

    if (need <= b->cap)
        return;
    b->cap = need;
    b->data = xrealloc(b->data, b->cap);
}

void buf_append(struct buf *b, const void *data, size_t len)
{
    buf_grow(b, len);
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *text)
{
    buf_append(b, text, strlen(text));
}

void buf_putc(struct buf *b, char c)
{
    buf_append(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    int n;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    BUG_ON(n < 0);
    buf_grow(b, (size_t)n);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
    va_end(again);
    b->len += (size_t)n;
}

void buf_consume(struct buf *b, size_t len)
{
    BUG_ON(len > b->len);
    if (!len)
        return;
    memmove(b->data, b->data + len, b->len - len);
    b->len -= len;
    b->data[b->len] = '\0';
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

char *buf_steal(struct buf *b)
{
    char *data;

    buf_grow(b, 0);
    b->data[b->len] = '\0';
    data = b->data;
    *b = (struct buf){0};
    return data;
}

void buf_release(struct buf *b)
{
    free(b->data);
    *b = (struct buf){0};
}
