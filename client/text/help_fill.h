#ifndef DDP_CLIENT_TEXT_HELP_FILL_H
#define DDP_CLIENT_TEXT_HELP_FILL_H

#include "client/text/term.h"

/* Fits a help text, which is broken for lines of 100 columns, to a terminal that is narrower: the lines of a paragraph and
 * those of an option's description are joined and broken anew. Lines that begin with blanks are kept as they are. */
void help_fill(const struct term *t, struct buf *text);

#endif
