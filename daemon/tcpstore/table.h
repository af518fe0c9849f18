#ifndef DDP_DAEMON_TCPSTORE_TABLE_H
#define DDP_DAEMON_TCPSTORE_TABLE_H

#include "daemon/tcpstore/request.h"

/* The content of a store: values and queues by key, and the clients that wait for keys. Everything in it, also what
 * waits, counts against one limit of bytes. One thread. Pieces that a function returns are valid until the next
 * change. */

struct tcpstore_table;

/* One client that waits for all of several keys. Zeroed: it waits for none. */
struct tcpstore_waiter {
    struct tcpstore_wait *waits; /* one for each key */
    size_t count, missing;
};

/* woken is called when the last key of a waiter has come; the waiter waits for none then. */
struct tcpstore_table *tcpstore_table_create(size_t limit, void (*woken)(void *ctx, struct tcpstore_waiter *),
                                             void *ctx);
void tcpstore_table_free(struct tcpstore_table *t);
size_t tcpstore_table_bytes(const struct tcpstore_table *t);

/* The functions below that store something return RESOURCE_EXHAUSTED if the limit would be passed, and change
 * nothing then. */
MUST_CHECK enum err_code tcpstore_set(struct tcpstore_table *t, struct tcpstore_piece key,
                                      struct tcpstore_piece value, struct err *e);
MUST_CHECK enum err_code tcpstore_append(struct tcpstore_table *t, struct tcpstore_piece key,
                                         struct tcpstore_piece value, struct err *e);
/* Replaces the value if it equals `expected`, or if the key is missing and `expected` is empty. *out is what the
 * client is told: the value now, or `expected` if the key is missing. */
MUST_CHECK enum err_code tcpstore_compare_set(struct tcpstore_table *t, struct tcpstore_piece key,
                                              struct tcpstore_piece expected, struct tcpstore_piece value,
                                              struct tcpstore_piece *out, struct err *e);
/* A missing key counts as 0. INVALID_ARGUMENT: the value is not a decimal number, or the sum does not fit. */
MUST_CHECK enum err_code tcpstore_add(struct tcpstore_table *t, struct tcpstore_piece key, int64_t number,
                                      int64_t *sum, struct err *e);
MUST_CHECK enum err_code tcpstore_push(struct tcpstore_table *t, struct tcpstore_piece key,
                                       struct tcpstore_piece value, struct err *e);

struct tcpstore_piece tcpstore_get(const struct tcpstore_table *t,
                                   struct tcpstore_piece key); /* empty: missing */
bool tcpstore_delete(struct tcpstore_table *t, struct tcpstore_piece key);
int64_t tcpstore_key_count(const struct tcpstore_table *t); /* keys with a value; queues do not count */
/* Calls fn with each key that has a value. */
void tcpstore_each_key(const struct tcpstore_table *t, void (*fn)(void *ctx, struct tcpstore_piece key),
                       void *ctx);
int64_t tcpstore_queue_length(const struct tcpstore_table *t, struct tcpstore_piece key);
/* The first value of the queue, which stays in it; empty: there is none. */
struct tcpstore_piece tcpstore_queue_first(const struct tcpstore_table *t, struct tcpstore_piece key);
/* The first value of the queue, which the caller frees; NULL: it is empty. */
void *tcpstore_pop(struct tcpstore_table *t, struct tcpstore_piece key, size_t *size);

/* The keys are a list of tcpstore_request. A key is there if it has a value or a queue that is not empty. */
bool tcpstore_all_there(const struct tcpstore_table *t, struct tcpstore_piece list, uint64_t count);
/* Waits for the keys that are missing, at least one. The waiter must wait for none. */
MUST_CHECK enum err_code tcpstore_wait(struct tcpstore_table *t, struct tcpstore_waiter *w,
                                       struct tcpstore_piece list, uint64_t count, struct err *e);
/* Adds 1 to the key's number. When the sum is `wanted` or more, wakes all who wait for the key, and *complete is true.
 * Else the waiter waits until the key is set or a later call completes the barrier. Errors as tcpstore_add. */
MUST_CHECK enum err_code tcpstore_barrier(struct tcpstore_table *t, struct tcpstore_waiter *w,
                                          struct tcpstore_piece key, int64_t wanted, bool *complete,
                                          struct err *e);
void tcpstore_unwait(struct tcpstore_table *t, struct tcpstore_waiter *w);

#endif
