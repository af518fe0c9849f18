#ifndef DDP_CLIENT_TEXT_COLUMNS_H
#define DDP_CLIENT_TEXT_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>

/* The length in bytes of the character of UTF-8 at the start of the text, from 1 to len, and the columns that a terminal gives it:
 * 2 for Chinese characters and pictures, 0 for an accent that joins the character before it. What the locale does not know
 * takes one column, and so does a byte that belongs to no character. len must be at least 1. */
size_t columns_of_next(const char *at, size_t len, size_t *columns);
/* False: the text ends within its first character. */
bool columns_are_known(const char *at, size_t len);

#endif
