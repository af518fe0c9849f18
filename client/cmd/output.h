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
/* True once nobody reads stdout or stderr any more: the pipe or the terminal has closed. */
bool output_reader_left(void);
bool stderr_put(struct buf *b); /* false: it could not be written */

/* Prints "ddpctl: <message>" to stderr and returns the exit code that fits: 2 for INVALID_ARGUMENT, 3 for
 * UNAVAILABLE, 1 for any other. */
int error_print(const struct err *e);
/* For a command that goes on with its other jobs: prints the error, and keeps in *first the exit code of the first one. *first is
 * EXIT_DONE before. */
void error_print_keep(const struct err *e, int *first);
/* As error_print, but appends the message to `out`. */
int error_put(const struct err *e, struct buf *out);

#endif
