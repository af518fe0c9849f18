#include "daemon/coordinator/service/pool.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

static void *pool_keep(struct pool *p, void *piece)
{
    p->pieces = array_grow(p->pieces, p->count, &p->cap, sizeof *p->pieces);
    p->pieces[p->count++] = piece;
    return piece;
}

void *pool_alloc(struct pool *p, size_t size)
{
    return pool_keep(p, xcalloc(1, size ? size : 1));
}

char *pool_text(struct pool *p, const char *text)
{
    return pool_keep(p, xstrdup(text ? text : ""));
}

char *pool_printf(struct pool *p, const char *fmt, ...)
{
    va_list args;
    char *text = NULL;
    va_start(args, fmt);
    const int len = vasprintf(&text, fmt, args);
    va_end(args);
    BUG_ON(len < 0);
    return pool_keep(p, text);
}

void pool_release(struct pool *p)
{
    for (size_t i = 0; i < p->count; i++)
        free(p->pieces[i]);
    free(p->pieces);
    *p = (struct pool){0};
}
