#ifndef DDP_CLIENT_CMD_OUTPUT_H
#define DDP_CLIENT_CMD_OUTPUT_H

#include "base/buf.h"
#include "base/err.h"

/* What ddpctl itself writes. Every function writes at once and clears the buffer. */

/* Returns false when nobody reads stdout any more (a closed pipe), or when it cannot be written. The latter
 * is reported on stderr, once. */
bool stdout_put(struct buf *b);
/* The same for a screen: ASCII only, where the locale is not UTF-8. */
bool screen_put(struct buf *b);
void screen_fold(struct buf *b); /* makes it so */
/* True once stdout could not be written. The exit code then tells whoever reads the file later. */
bool stdout_lost(void);
bool stderr_put(struct buf *b); /* false: it could not be written */

/* Prints "ddpctl: <message>" to stderr and returns the exit code that fits: 2 for INVALID_ARGUMENT, 3 for
 * UNAVAILABLE, 1 for any other. */
int error_print(const struct err *e);

#endif
