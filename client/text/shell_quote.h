#ifndef DDP_CLIENT_TEXT_SHELL_QUOTE_H
#define DDP_CLIENT_TEXT_SHELL_QUOTE_H

#include "base/buf.h"

/* Appends a word as a POSIX shell reads it back: in single quotes if it needs them. No state; any thread. */
void shell_quote(struct buf *out, const char *word);

#endif
