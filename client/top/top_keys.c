#include "client/top/top_keys.h"

#include <string.h>

#include "base/mem.h"

static const struct {
    const char *bytes; /* behind the escape */
    enum top_key_kind kind;
} sequences[] = {
    {"[A", TOP_KEY_UP},       {"[B", TOP_KEY_DOWN},       {"OA", TOP_KEY_UP},    {"OB", TOP_KEY_DOWN},
    {"[5~", TOP_KEY_PAGE_UP}, {"[6~", TOP_KEY_PAGE_DOWN}, {"[H", TOP_KEY_HOME},  {"[F", TOP_KEY_END},
    {"OH", TOP_KEY_HOME},     {"OF", TOP_KEY_END},        {"[1~", TOP_KEY_HOME}, {"[4~", TOP_KEY_END},
};

/* The length of an unknown control sequence behind its escape: parameters, then one letter or ~. */
static size_t top_sequence_length(const char *bytes, size_t count)
{
    size_t len = 1;

    if (bytes[0] == 'O')
        return count > 1 ? 2 : 1;
    if (bytes[0] != '[')
        return 0; /* Esc, then another key */
    while (len < count && (bytes[len] < '@' || bytes[len] > '~'))
        len++;
    return len < count ? len + 1 : count;
}

static size_t top_take_sequence(const char *bytes, size_t count, struct top_key *key)
{
    for (size_t i = 0; i < ARRAY_LEN(sequences); i++) {
        const size_t len = strlen(sequences[i].bytes);
        if (count > len && memcmp(bytes + 1, sequences[i].bytes, len) == 0) {
            key->kind = sequences[i].kind;
            return len + 1;
        }
    }
    const size_t len = count > 1 ? top_sequence_length(bytes + 1, count - 1) : 0;
    key->kind = len ? TOP_KEY_OTHER : TOP_KEY_ESCAPE;
    return len + 1;
}

static size_t top_take_character(const char *bytes, size_t count, struct top_key *key)
{
    const unsigned char first = (unsigned char)bytes[0];
    const size_t len = first < 0x80   ? 1
                       : first < 0xc2 ? 0
                       : first < 0xe0 ? 2
                       : first < 0xf0 ? 3
                       : first < 0xf5 ? 4
                                      : 0;

    key->kind = len && len <= count && first >= ' ' ? TOP_KEY_CHARACTER : TOP_KEY_OTHER;
    for (size_t i = 1; i < len && i < count; i++)
        if (((unsigned char)bytes[i] & 0xc0) != 0x80)
            key->kind = TOP_KEY_OTHER;
    if (key->kind == TOP_KEY_OTHER)
        return 1;
    memcpy(key->text, bytes, len);
    return len;
}

size_t top_key_take(const char *bytes, size_t count, struct top_key *key)
{
    *key = (struct top_key){.kind = TOP_KEY_OTHER};
    if (!count)
        return 0;
    switch (bytes[0]) {
    case '\033':
        return top_take_sequence(bytes, count, key);
    case '\r':
    case '\n':
        key->kind = TOP_KEY_ENTER;
        return 1;
    case '\b':
    case 0x7f:
        key->kind = TOP_KEY_BACKSPACE;
        return 1;
    default:
        return top_take_character(bytes, count, key);
    }
}
