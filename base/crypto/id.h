#ifndef DDP_BASE_CRYPTO_ID_H
#define DDP_BASE_CRYPTO_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Random identifiers, digests, and a constant-time comparison for secrets. Any thread. */

#define ID_TEXT 33      /* 128 random bits in hex, and NUL */
#define DIGEST_BYTES 32 /* SHA-256 */
#define DIGEST_TEXT 65  /* in hex, and NUL */

void id_random(void *out, size_t size); /* from getrandom(2); aborts if the kernel gives none */
void id_text(char out[ID_TEXT]);
void hex_encode(char *out, const void *data, size_t size); /* writes 2 * size + 1 bytes */
bool hex_decode(void *out, size_t size, const char *text); /* false unless text has exactly 2 * size digits */

void digest_sha256(uint8_t out[DIGEST_BYTES], const void *data, size_t size);
void digest_hmac(uint8_t out[DIGEST_BYTES], const void *key, size_t key_size, const void *data, size_t size);
MUST_CHECK enum err_code digest_file(char out[DIGEST_TEXT], const char *path, struct err *e);
/* Whether a node may have this name: 1 to 63 letters, digits, '-', '_' and '.', not beginning with '-' or '.'. */
bool id_node_name(const char *name);

bool secret_equal(const void *a, const void *b, size_t size); /* takes the same time for all contents */

#endif
