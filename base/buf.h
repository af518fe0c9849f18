#ifndef DDP_BASE_BUF_H
#define DDP_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

/* A growable byte buffer. Initialise it to zeros. After the first append, a NUL always follows the data. */
struct buf {
    char *data;
    size_t len, cap;
};

void buf_append(struct buf *b, const void *data, size_t len);
void buf_reserve(struct buf *b, size_t extra); /* makes room for `extra` more bytes, and for no more */
void buf_puts(struct buf *b, const char *text);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_consume(struct buf *b, size_t len); /* removes the first len bytes */
void buf_clear(struct buf *b);               /* removes the content, keeps the memory */
char *buf_steal(struct buf *b);              /* returns the data, never NULL, for the caller to free */
void buf_release(struct buf *b);             /* also for CLEANUP */

#endif
