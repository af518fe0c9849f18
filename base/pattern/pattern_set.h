#ifndef DDP_BASE_PATTERN_PATTERN_SET_H
#define DDP_BASE_PATTERN_PATTERN_SET_H

#include <stddef.h>
#include <stdint.h>

#include "base/pattern/pattern_tree.h"

/* Sets of characters: what stands in brackets, and single characters. */

/* Reads one character of UTF-8. Returns its bytes, 0 at the end of the text, -1 if the bytes are not UTF-8. */
int pattern_character(const char *text, uint32_t *out);
/* Reads what follows '[' up to and with the ']' that ends it, moves *at behind it, and adds the set's ranges to the end of the
 * tree's ranges. */
MUST_CHECK enum err_code pattern_set_parse(struct pattern_tree *t, const char **at, struct err *e);

#endif
