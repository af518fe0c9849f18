#ifndef DDP_BASE_MATCH_NEAREST_H
#define DDP_BASE_MATCH_NEAREST_H

#include <stddef.h>

/* For "did you mean": returns the name with the fewest edits from a mistyped word (a letter inserted, removed,
 * replaced, or swapped with its neighbour), or a name that the word abbreviates. NULL if no name is close: each
 * needs more edits than a third of the word's letters plus one. */
const char *nearest_name(const char *word, const char *const *names, size_t count);

#endif
