#ifndef DDP_BASE_CRYPTO_SECRET_H
#define DDP_BASE_CRYPTO_SECRET_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* Files that hold a secret: tokens and TLS keys. Any thread. */

/* Appends the whole file (at most limit bytes) to out. PERMISSION_DENIED if others may read or write the
 * file; the message has the command that fixes it. The group may read the file (0640) if this program runs
 * with that group or as root, so that several accounts can share a key. The mode of other types of files,
 * such as a pipe, is not checked. */
MUST_CHECK enum err_code secret_read(const char *path, size_t limit, struct buf *out, struct err *e);
/* The same for a file that this program made itself: PERMISSION_DENIED if it belongs to another user. */
MUST_CHECK enum err_code secret_read_own(const char *path, size_t limit, struct buf *out, struct err *e);

#endif
