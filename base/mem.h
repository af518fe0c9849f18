#ifndef DDP_BASE_MEM_H
#define DDP_BASE_MEM_H

#include <stddef.h>

/* Small host allocations abort if there is no memory; tensors have their own allocator, which returns
 * RESOURCE_EXHAUSTED. */

void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size); /* zeroed; also aborts if the product overflows */
void *xrealloc(void *old, size_t size);
void *xmemdup(const void *data, size_t size);
char *xstrdup(const char *text); /* NULL for NULL */
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Replaces an owned text; the new one is cut at 1,023 bytes. */
void text_set(char **text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Grows an array of `size`-byte elements for one more element; returns the array, which may have moved, and updates
 * *cap. */
void *array_grow(void *array, size_t count, size_t *cap, size_t size);

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Releases a local at the end of its block: `CLEANUP(free_text) char *name = NULL;`. steal() hands it over. */
#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define steal(p)                                                                                             \
    __extension__({                                                                                          \
        __typeof__(p) stolen_ = (p);                                                                         \
        (p) = NULL;                                                                                          \
        stolen_;                                                                                             \
    })
void free_text(char **text); /* for CLEANUP */
void close_fd(int *fd);      /* for CLEANUP; ignores -1, keeps errno */

/* NULL-terminated lists of strings; each string is one allocation. */
char **strv_dup(char *const *list);
void strv_free(char **list);
size_t strv_len(char *const *list);
char **strv_append(char **list,
                   const char *text); /* returns the list, which may have moved; list may be NULL */

#endif
