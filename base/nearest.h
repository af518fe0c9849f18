#ifndef DDP_BASE_NEAREST_H
#define DDP_BASE_NEAREST_H

#include <stddef.h>

/* For "did you mean": the name that takes the fewest edits (a letter inserted, removed, replaced, or swapped
 * with its neighbour) from a mistyped word, or that the word abbreviates. NULL where no name is close enough
 * to have been meant: more than a third of the word's letters, plus one, would have to change. */
const char *nearest_name(const char *word, const char *const *names, size_t count);

#endif
