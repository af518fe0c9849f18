#ifndef DDP_CLIENT_TOP_TOP_KEYS_H
#define DDP_CLIENT_TOP_TOP_KEYS_H

#include <stddef.h>

/* Keys from the bytes that a terminal sends. */

enum top_key_kind {
    TOP_KEY_CHARACTER, /* text */
    TOP_KEY_UP,
    TOP_KEY_DOWN,
    TOP_KEY_PAGE_UP,
    TOP_KEY_PAGE_DOWN,
    TOP_KEY_HOME,
    TOP_KEY_END,
    TOP_KEY_ENTER,
    TOP_KEY_ESCAPE,
    TOP_KEY_BACKSPACE,
    TOP_KEY_OTHER, /* means nothing here */
};

struct top_key {
    enum top_key_kind kind;
    char text[5]; /* one character in UTF-8 */
};

/* Takes the first key of the bytes that were read. Returns how many bytes it has, 0: none. An escape with nothing behind it is the
 * key Esc: a terminal sends the bytes of another key together. */
size_t top_key_take(const char *bytes, size_t count, struct top_key *key);

#endif
