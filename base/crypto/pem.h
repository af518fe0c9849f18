#ifndef DDP_BASE_CRYPTO_PEM_H
#define DDP_BASE_CRYPTO_PEM_H

#include <stddef.h>

#include "base/err.h"

/* Checks that PEM files belong together. Any thread. */

struct pem_text {
    const char *name; /* the name of its file, for messages */
    const char *data;
    size_t len;
};

/* Checks that the key belongs to the first certificate and has no passphrase, which nobody could type.
 * INVALID_ARGUMENT names the files. */
MUST_CHECK enum err_code pem_pair_check(const struct pem_text *cert, const struct pem_text *key,
                                        struct err *e);

#endif
