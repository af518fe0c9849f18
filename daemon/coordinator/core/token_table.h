#ifndef DDP_DAEMON_COORDINATOR_CORE_TOKEN_TABLE_H
#define DDP_DAEMON_COORDINATOR_CORE_TOKEN_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/crypto/id.h"

/* Finds a spawn by the hash of its token. Anybody who reaches the coordinator's port can make it look for a token, so a search
 * compares the hash with a few others only, however many spawns there are. All zeros: an empty table. */

struct spawn;

struct token_table {
    struct spawn **buckets; /* each the first of a list: spawn.token_next */
    size_t bucket_count, count;
};

void token_table_add(struct token_table *t, struct spawn *s);
void token_table_remove(struct token_table *t, struct spawn *s); /* it must be in the table */
/* Returns NULL if no spawn has a token with this hash. */
struct spawn *token_table_find(const struct token_table *t, const uint8_t hash[DIGEST_BYTES]);
void token_table_release(struct token_table *t); /* the spawns stay */

#endif
