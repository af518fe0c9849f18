#include "base/match/nearest.h"

#include <string.h>

#define LENGTH_MAX 31 /* longest compared part of a word */

/* Damerau-Levenshtein distance (optimal string alignment), three rows of its table at a time. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[3][LENGTH_MAX + 1], na = strnlen(a, LENGTH_MAX), nb = strnlen(b, LENGTH_MAX);

    for (size_t j = 0; j <= nb; j++)
        row[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];

        now[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);

            if (last[j] + 1 < best)
                best = last[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[na % 3][nb];
}

const char *nearest_name(const char *word, const char *const *names, size_t count)
{
    const size_t len = strlen(word);
    const char *best = NULL;
    size_t least = len / 3 + 2;

    for (size_t i = 0; i < count; i++) {
        size_t edits = edit_distance(word, names[i]);

        if (edits < least) {
            least = edits;
            best = names[i];
        }
    }
    /* An abbreviation needs many edits, such as "coord" for "coordinator", so it is found in another way. */
    for (size_t i = 0; i < count && !best; i++)
        if (len > 2 && strncmp(word, names[i], len) == 0)
            best = names[i];
    return best;
}
