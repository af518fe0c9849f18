#include "daemon/tcpstore/table.h"

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Entries are in a balanced tree (tsearch). Unlike a hash table it has no bad keys, which matters because anybody
 * who reaches the port chooses keys. */

struct queued {
    struct queued *next;
    size_t size;
    void *data;
};

/* A place in the list of an entry that somebody waits for. */
struct tcpstore_wait {
    struct table_entry *entry; /* NULL: the key has come */
    struct tcpstore_waiter *waiter;
    struct tcpstore_wait *next, **link; /* link: the pointer that points here */
};

struct table_entry {
    struct tcpstore_piece key; /* the bytes follow the struct */
    bool present;              /* it has a value; else it is here for its queue or for those who wait */
    void *value;
    size_t size;
    struct queued *first, *last;
    int64_t queue_length;
    struct tcpstore_wait *waits, **last_wait;
};

struct tcpstore_table {
    void *tree;
    size_t limit, bytes;
    int64_t present;
    void (*woken)(void *ctx, struct tcpstore_waiter *);
    void *ctx;
};

/* What malloc and the tree need for each allocation and each entry, rounded up. */
enum { ALLOCATION_COST = 32, ENTRY_COST = sizeof(struct table_entry) + 3 * ALLOCATION_COST };

static int entries_compare(const void *a, const void *b)
{
    const struct tcpstore_piece *x = a, *y = b;

    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return x->size ? memcmp(x->data, y->data, x->size) : 0;
}

struct tcpstore_table *tcpstore_table_create(size_t limit, void (*woken)(void *ctx, struct tcpstore_waiter *),
                                             void *ctx)
{
    struct tcpstore_table *t = xcalloc(1, sizeof(*t));

    *t = (struct tcpstore_table){.limit = limit, .woken = woken, .ctx = ctx};
    return t;
}

static void queued_free(struct queued *q)
{
    free(q->data);
    free(q);
}

static void entry_free(void *at)
{
    struct table_entry *entry = at;

    while (entry->first) {
        struct queued *q = entry->first;
        entry->first = q->next;
        queued_free(q);
    }
    free(entry->value);
    free(entry);
}

void tcpstore_table_free(struct tcpstore_table *t)
{
    if (!t)
        return;
    tdestroy(t->tree, entry_free);
    free(t);
}

size_t tcpstore_table_bytes(const struct tcpstore_table *t)
{
    return t->bytes;
}

static enum err_code table_reserve(const struct tcpstore_table *t, size_t more, struct err *e)
{
    if (more <= t->limit && t->bytes <= t->limit - more)
        return ERR_OK;
    return err_set(e, ERR_RESOURCE_EXHAUSTED, "the store holds %zu bytes of at most %zu: %zu more do not fit",
                   t->bytes, t->limit, more);
}

static struct table_entry *table_find(const struct tcpstore_table *t, struct tcpstore_piece key)
{
    struct table_entry *const *node = tfind(&key, (void *const *)&t->tree, entries_compare);

    return node ? *node : NULL;
}

/* The caller has reserved ENTRY_COST and the key's size. */
static struct table_entry *table_find_or_add(struct tcpstore_table *t, struct tcpstore_piece key)
{
    struct table_entry *entry = table_find(t, key);
    uint8_t *bytes;

    if (entry)
        return entry;
    entry = xcalloc(1, sizeof(*entry) + key.size);
    bytes = (uint8_t *)(entry + 1);
    if (key.size)
        memcpy(bytes, key.data, key.size);
    entry->key = (struct tcpstore_piece){bytes, key.size};
    entry->last_wait = &entry->waits;
    BUG_ON(!tsearch(entry, &t->tree, entries_compare)); /* no memory for the node: as xmalloc */
    t->bytes += ENTRY_COST + key.size;
    return entry;
}

/* An entry is kept for a value, for a queue, or for those who wait. */
static void entry_drop_unused(struct tcpstore_table *t, struct table_entry *entry)
{
    if (entry->present || entry->first || entry->waits)
        return;
    tdelete(entry, &t->tree, entries_compare);
    t->bytes -= ENTRY_COST + entry->key.size;
    entry_free(entry);
}

static void wait_unlink(struct tcpstore_wait *w)
{
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
    else
        w->entry->last_wait = w->link;
    w->entry = NULL;
}

static void waiter_end(struct tcpstore_table *t, struct tcpstore_waiter *waiter)
{
    t->bytes -= waiter->count * sizeof(struct tcpstore_wait);
    free(waiter->waits);
    *waiter = (struct tcpstore_waiter){0};
}

/* Those who waited for this key wait for one key less. A queued value is for one client: `one` ends after the first
 * waiter that has all its keys. */
static void entry_wake(struct tcpstore_table *t, struct table_entry *entry, bool one)
{
    while (entry->waits) {
        struct tcpstore_waiter *waiter = entry->waits->waiter;

        wait_unlink(entry->waits);
        if (--waiter->missing)
            continue;
        waiter_end(t, waiter);
        t->woken(t->ctx, waiter);
        if (one)
            return;
    }
}

/* Stores the value, whose room the caller has reserved. */
static void entry_store(struct tcpstore_table *t, struct table_entry *entry, void *value, size_t size)
{
    free(entry->value);
    t->bytes = t->bytes - entry->size + size;
    entry->value = value;
    entry->size = size;
    t->present += entry->present ? 0 : 1;
    entry->present = true;
}

static void entry_assign(struct tcpstore_table *t, struct table_entry *entry, void *value, size_t size)
{
    entry_store(t, entry, value, size);
    entry_wake(t, entry, false);
}

static void *piece_copy(struct tcpstore_piece piece)
{
    return piece.size ? xmemdup(piece.data, piece.size) : NULL;
}

enum err_code tcpstore_set(struct tcpstore_table *t, struct tcpstore_piece key, struct tcpstore_piece value,
                           struct err *e)
{
    if (table_reserve(t, ENTRY_COST + key.size + value.size, e))
        return e->code;
    entry_assign(t, table_find_or_add(t, key), piece_copy(value), value.size);
    return ERR_OK;
}

enum err_code tcpstore_append(struct tcpstore_table *t, struct tcpstore_piece key,
                              struct tcpstore_piece value, struct err *e)
{
    struct table_entry *entry = table_find(t, key);
    size_t old = entry ? entry->size : 0;
    uint8_t *whole;

    if (old > TCPSTORE_VALUE_MAX - value.size)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "expected values of at most %d bytes, got %zu by appending",
                       TCPSTORE_VALUE_MAX, old + value.size);
    if (table_reserve(t, ENTRY_COST + key.size + old + value.size, e))
        return e->code;
    entry = table_find_or_add(t, key);
    whole = xmalloc(old + value.size + 1);
    if (old)
        memcpy(whole, entry->value, old);
    if (value.size)
        memcpy(whole + old, value.data, value.size);
    entry_assign(t, entry, whole, old + value.size);
    return ERR_OK;
}

enum err_code tcpstore_compare_set(struct tcpstore_table *t, struct tcpstore_piece key,
                                   struct tcpstore_piece expected, struct tcpstore_piece value,
                                   struct tcpstore_piece *out, struct err *e)
{
    const struct table_entry *entry = table_find(t, key);
    bool there = entry && entry->present;
    struct tcpstore_piece now =
        there ? (struct tcpstore_piece){entry->value, entry->size} : (struct tcpstore_piece){NULL, 0};

    if (entries_compare(&now, &expected)) {
        *out = there ? now : expected; /* PyTorch's own answer for a missing key */
        return ERR_OK;
    }
    if (tcpstore_set(t, key, value, e))
        return e->code;
    *out = tcpstore_get(t, key);
    return ERR_OK;
}

/* The sum of the key's number and another one. */
static enum err_code number_sum(const struct tcpstore_table *t, struct tcpstore_piece key, int64_t number,
                                int64_t *sum, struct err *e)
{
    struct tcpstore_piece old = tcpstore_get(t, key);
    char text[32], *end = text;
    int64_t before = 0;
    int n;

    if (old.size) {
        n = snprintf(text, sizeof(text), "%.*s", (int)(old.size < 31 ? old.size : 31),
                     (const char *)old.data);
        errno = 0;
        before = n > 0 ? strtoll(text, &end, 10) : 0;
        if (end == text || errno)
            return err_set(e, ERR_INVALID_ARGUMENT, "ADD to a value that is not a number: '%.20s'", text);
    }
    if (__builtin_add_overflow(before, number, sum))
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "ADD of %" PRId64 " to %" PRId64 ": the sum does not fit in 64 bits", number, before);
    return ERR_OK;
}

enum err_code tcpstore_add(struct tcpstore_table *t, struct tcpstore_piece key, int64_t number, int64_t *sum,
                           struct err *e)
{
    char text[32];
    int n;

    if (number_sum(t, key, number, sum, e))
        return e->code;
    n = snprintf(text, sizeof(text), "%" PRId64, *sum);
    return tcpstore_set(t, key, (struct tcpstore_piece){text, (size_t)n}, e);
}

enum err_code tcpstore_push(struct tcpstore_table *t, struct tcpstore_piece key, struct tcpstore_piece value,
                            struct err *e)
{
    size_t cost = sizeof(struct queued) + 2 * ALLOCATION_COST + value.size;
    struct table_entry *entry;
    struct queued *q;

    if (table_reserve(t, ENTRY_COST + key.size + cost, e))
        return e->code;
    entry = table_find_or_add(t, key);
    q = xcalloc(1, sizeof(*q));
    q->data = piece_copy(value);
    q->size = value.size;
    if (entry->last)
        entry->last->next = q;
    else
        entry->first = q;
    entry->last = q;
    entry->queue_length++;
    t->bytes += cost;
    entry_wake(t, entry, true);
    return ERR_OK;
}

void *tcpstore_pop(struct tcpstore_table *t, struct tcpstore_piece key, size_t *size)
{
    struct table_entry *entry = table_find(t, key);
    struct queued *q = entry ? entry->first : NULL;
    void *data;

    *size = 0;
    if (!q)
        return NULL;
    entry->first = q->next;
    if (!entry->first)
        entry->last = NULL;
    entry->queue_length--;
    t->bytes -= sizeof(*q) + 2 * ALLOCATION_COST + q->size;
    *size = q->size;
    data = q->data ? steal(q->data) : xcalloc(1, 1); /* an empty value is not an empty queue */
    queued_free(q);
    entry_drop_unused(t, entry);
    return data;
}

struct tcpstore_piece tcpstore_queue_first(const struct tcpstore_table *t, struct tcpstore_piece key)
{
    const struct table_entry *entry = table_find(t, key);
    const struct queued *q = entry ? entry->first : NULL;

    return q ? (struct tcpstore_piece){q->data, q->size} : (struct tcpstore_piece){NULL, 0};
}

struct tcpstore_piece tcpstore_get(const struct tcpstore_table *t, struct tcpstore_piece key)
{
    const struct table_entry *entry = table_find(t, key);

    return entry ? (struct tcpstore_piece){entry->value, entry->size} : (struct tcpstore_piece){NULL, 0};
}

bool tcpstore_delete(struct tcpstore_table *t, struct tcpstore_piece key)
{
    struct table_entry *entry = table_find(t, key);

    if (!entry || !entry->present)
        return false;
    free(entry->value);
    entry->value = NULL;
    t->bytes -= entry->size;
    entry->size = 0;
    entry->present = false;
    t->present--;
    entry_drop_unused(t, entry);
    return true;
}

int64_t tcpstore_key_count(const struct tcpstore_table *t)
{
    return t->present;
}

struct key_visit {
    void (*fn)(void *ctx, struct tcpstore_piece key);
    void *ctx;
};

static void key_visit(const void *node, VISIT when, void *closure)
{
    const struct table_entry *entry = *(struct table_entry *const *)node;
    const struct key_visit *v = closure;

    if ((when == postorder || when == leaf) && entry->present)
        v->fn(v->ctx, entry->key);
}

void tcpstore_each_key(const struct tcpstore_table *t, void (*fn)(void *ctx, struct tcpstore_piece key),
                       void *ctx)
{
    twalk_r(t->tree, key_visit, &(struct key_visit){fn, ctx});
}

int64_t tcpstore_queue_length(const struct tcpstore_table *t, struct tcpstore_piece key)
{
    const struct table_entry *entry = table_find(t, key);

    return entry ? entry->queue_length : 0;
}

static bool key_is_there(const struct tcpstore_table *t, struct tcpstore_piece key)
{
    const struct table_entry *entry = table_find(t, key);

    return entry && (entry->present || entry->first);
}

bool tcpstore_all_there(const struct tcpstore_table *t, struct tcpstore_piece list, uint64_t count)
{
    while (count--)
        if (!key_is_there(t, tcpstore_list_take(&list)))
            return false;
    return true;
}

static void wait_link(struct tcpstore_wait *w, struct table_entry *entry, struct tcpstore_waiter *waiter)
{
    *w = (struct tcpstore_wait){.entry = entry, .waiter = waiter, .link = entry->last_wait};
    *entry->last_wait = w;
    entry->last_wait = &w->next;
}

enum err_code tcpstore_wait(struct tcpstore_table *t, struct tcpstore_waiter *w, struct tcpstore_piece list,
                            uint64_t count, struct err *e)
{
    BUG_ON(w->waits);
    /* what the keys need at most: not all may be new, and not all missing */
    if (table_reserve(t, count * (ENTRY_COST + sizeof(struct tcpstore_wait)) + list.size, e))
        return e->code;
    w->waits = xcalloc(count, sizeof(*w->waits));
    w->count = count;
    t->bytes += count * sizeof(*w->waits);
    for (uint64_t i = 0; i < count; i++) {
        struct tcpstore_piece key = tcpstore_list_take(&list);

        if (!key_is_there(t, key))
            wait_link(&w->waits[w->missing++], table_find_or_add(t, key), w);
    }
    return ERR_OK;
}

enum err_code tcpstore_barrier(struct tcpstore_table *t, struct tcpstore_waiter *w, struct tcpstore_piece key,
                               int64_t wanted, bool *complete, struct err *e)
{
    struct table_entry *entry;
    int64_t sum;
    char text[32];
    int n;

    BUG_ON(w->waits);
    if (number_sum(t, key, 1, &sum, e) ||
        table_reserve(t, ENTRY_COST + key.size + sizeof(text) + sizeof(struct tcpstore_wait), e))
        return e->code;
    n = snprintf(text, sizeof(text), "%" PRId64, sum);
    entry = table_find_or_add(t, key);
    entry_store(t, entry, xmemdup(text, (size_t)n), (size_t)n);
    *complete = sum >= wanted;
    if (*complete) {
        entry_wake(t, entry, false);
        return ERR_OK;
    }
    w->waits = xcalloc(1, sizeof(*w->waits));
    w->count = w->missing = 1;
    t->bytes += sizeof(*w->waits);
    wait_link(w->waits, entry, w);
    return ERR_OK;
}

void tcpstore_unwait(struct tcpstore_table *t, struct tcpstore_waiter *w)
{
    /* the places that were linked come first, and those whose key has come have no entry any more */
    for (size_t i = 0; i < w->count; i++) {
        struct table_entry *entry = w->waits[i].entry;

        if (!entry)
            continue;
        wait_unlink(&w->waits[i]);
        entry_drop_unused(t, entry);
    }
    if (w->waits)
        waiter_end(t, w);
}
