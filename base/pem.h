#ifndef DDP_BASE_PEM_H
#define DDP_BASE_PEM_H

#include <stddef.h>

#include "base/err.h"

/* PEM files that belong together. Any thread. */

struct pem_text {
    const char *name; /* its file, for messages */
    const char *data;
    size_t len;
};

/* The key is that of the first certificate, and wants no passphrase: nobody is there to type one.
 * INVALID_ARGUMENT with the files' names. */
MUST_CHECK enum err_code pem_pair_check(const struct pem_text *cert, const struct pem_text *key,
                                        struct err *e);

#endif
