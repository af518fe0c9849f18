#ifndef DDP_BASE_MEM_H
#define DDP_BASE_MEM_H

#include <stddef.h>

/* Small host allocations abort when memory is out; tensors use their own allocator and return
 * RESOURCE_EXHAUSTED. */

void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size); /* zeroed; aborts on overflow of the product */
void *xrealloc(void *old, size_t size);
void *xmemdup(const void *data, size_t size);
char *xstrdup(const char *text); /* NULL gives NULL */
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Grows an array of `size`-byte elements so that one more fits: returns the (moved) array, updates *cap. */
void *array_grow(void *array, size_t count, size_t *cap, size_t size);

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* A local that releases itself: `CLEANUP(free_text) char *name = NULL;`. Hand over with steal(). */
#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define steal(p)                                                                                             \
    __extension__({                                                                                          \
        __typeof__(p) stolen_ = (p);                                                                         \
        (p) = NULL;                                                                                          \
        stolen_;                                                                                             \
    })
void free_text(char **text); /* for CLEANUP */
void close_fd(int *fd);      /* for CLEANUP; ignores -1, keeps errno */

/* NULL-terminated string lists, one allocation a string. */
char **strv_dup(char *const *list);
void strv_free(char **list);
size_t strv_len(char *const *list);
char **strv_append(char **list, const char *text); /* returns the moved list; list may be NULL */

#endif
