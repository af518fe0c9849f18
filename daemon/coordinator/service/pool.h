#ifndef DDP_DAEMON_COORDINATOR_SERVICE_POOL_H
#define DDP_DAEMON_COORDINATOR_SERVICE_POOL_H

#include <stddef.h>

/* Memory for a message: many small pieces that are freed together. Zero-initialise. One thread. */
struct pool {
    void **pieces;
    size_t count, cap;
};

void *pool_alloc(struct pool *p, size_t size); /* zeroed */
char *pool_text(struct pool *p, const char *text);
char *pool_printf(struct pool *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void pool_release(struct pool *p); /* for CLEANUP too */

#endif
