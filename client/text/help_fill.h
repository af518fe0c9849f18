#ifndef DDP_CLIENT_TEXT_HELP_FILL_H
#define DDP_CLIENT_TEXT_HELP_FILL_H

#include "client/text/term.h"

/* Fits a help text with lines of 100 columns to a narrower terminal: joins the lines of a paragraph or of an option's
 * description, and breaks them again. Breaks a usage line, too. Other lines that begin with blanks are kept as they are. */
void help_fill(const struct term *t, struct buf *text);

#endif
