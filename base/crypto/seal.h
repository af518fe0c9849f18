#ifndef DDP_BASE_CRYPTO_SEAL_H
#define DDP_BASE_CRYPTO_SEAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Encrypts and authenticates bytes that other machines store: AES-256-GCM with a random nonce. `context` is
 * authenticated but is not part of the result; seal_open needs the same context. Any thread. */

#define SEAL_KEY 32

void seal_close(struct buf *out, const uint8_t key[SEAL_KEY], const char *context, const void *data,
                size_t size);
/* Appends the plain text. DATA_LOSS: sealed with another key or context, or changed since. */
MUST_CHECK enum err_code seal_open(struct buf *out, const uint8_t key[SEAL_KEY], const char *context,
                                   const void *data, size_t size, struct err *e);

#endif
