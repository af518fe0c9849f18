#include "base/mem.h"

#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *or_abort(void *p)
{
    if (!p) {
        fputs("out of memory\n", stderr);
        abort();
    }
    return p;
}

void *xmalloc(size_t size)
{
    return or_abort(malloc(size ? size : 1));
}

void *xcalloc(size_t count, size_t size)
{
    return or_abort(calloc(count ? count : 1, size ? size : 1));
}

void *xrealloc(void *old, size_t size)
{
    return or_abort(realloc(old, size ? size : 1));
}

void *xmemdup(const void *data, size_t size)
{
    void *copy = xmalloc(size);

    if (size)
        memcpy(copy, data, size);
    return copy;
}

char *xstrdup(const char *text)
{
    return text ? or_abort(strdup(text)) : NULL;
}

char *xasprintf(const char *fmt, ...)
{
    char *text;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    BUG_ON(n < 0);
    return text;
}

void text_set(char **text, const char *fmt, ...)
{
    char line[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    free(*text);
    *text = xstrdup(line);
}

void *array_grow(void *array, size_t count, size_t *cap, size_t size)
{
    if (count < *cap)
        return array;
    *cap = *cap ? *cap * 2 : 8;
    return xrealloc(array, *cap * size);
}

void free_text(char **text)
{
    free(*text);
    *text = NULL;
}

void close_fd(int *fd)
{
    int saved = errno;

    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    errno = saved;
}

size_t strv_len(char *const *list)
{
    size_t n = 0;

    while (list && list[n])
        n++;
    return n;
}

char **strv_dup(char *const *list)
{
    size_t n = strv_len(list);
    char **copy = xcalloc(n + 1, sizeof(*copy));

    for (size_t i = 0; i < n; i++)
        copy[i] = xstrdup(list[i]);
    return copy;
}

void strv_free(char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}

char **strv_append(char **list, const char *text)
{
    size_t n = strv_len(list);

    list = xrealloc(list, (n + 2) * sizeof(*list));
    list[n] = xstrdup(text);
    list[n + 1] = NULL;
    return list;
}
