/* A hash table with lists. The hash is SHA-256 of random tokens that the core made, so nobody can choose tokens that end up in one
 * list. The comparison takes the same time for all contents (secret_equal). The time of a search tells only how many
 * spawns are in one list, which is of no use to somebody who guesses tokens of 256 random bits. */
#include "daemon/coordinator/core/token_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "daemon/coordinator/core/model.h"

#define BUCKETS_LEAST 64

/* There is at least one bucket. */
static struct spawn **token_bucket(const struct token_table *t, const uint8_t hash[DIGEST_BYTES])
{
    uint64_t first;

    memcpy(&first, hash, sizeof(first));
    return &t->buckets[first % t->bucket_count];
}

static void token_table_link(struct token_table *t, struct spawn *s)
{
    struct spawn **bucket = token_bucket(t, s->r.token_hash);

    s->token_next = *bucket;
    *bucket = s;
}

static void token_table_grow(struct token_table *t)
{
    struct token_table old = *t;

    t->bucket_count = old.bucket_count ? 2 * old.bucket_count : BUCKETS_LEAST;
    t->buckets = xcalloc(t->bucket_count, sizeof(struct spawn *));
    for (size_t i = 0; i < old.bucket_count; i++)
        for (struct spawn *s = old.buckets[i], *next; s; s = next) {
            next = s->token_next;
            token_table_link(t, s);
        }
    free(old.buckets);
}

void token_table_add(struct token_table *t, struct spawn *s)
{
    if (t->count == t->bucket_count)
        token_table_grow(t);
    token_table_link(t, s);
    t->count++;
}

void token_table_remove(struct token_table *t, struct spawn *s)
{
    BUG_ON(!t->count);
    struct spawn **at = token_bucket(t, s->r.token_hash);
    while (*at && *at != s)
        at = &(*at)->token_next;
    BUG_ON(!*at);
    *at = s->token_next;
    t->count--;
}

struct spawn *token_table_find(const struct token_table *t, const uint8_t hash[DIGEST_BYTES])
{
    if (!t->count)
        return NULL;
    for (struct spawn *s = *token_bucket(t, hash); s; s = s->token_next)
        if (secret_equal(hash, s->r.token_hash, DIGEST_BYTES))
            return s;
    return NULL;
}

void token_table_release(struct token_table *t)
{
    free(t->buckets);
    *t = (struct token_table){0};
}
