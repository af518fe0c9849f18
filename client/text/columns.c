#include "client/text/columns.h"

#include <stdint.h>
#include <wchar.h>

static bool byte_continues(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

static size_t character_size(unsigned char first)
{
    return first < 0xc2 || first > 0xf4 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

bool columns_are_known(const char *at, size_t len)
{
    size_t have = 1;
    while (have < len && byte_continues(at[have]))
        have++;
    return have < len || have >= character_size((unsigned char)*at);
}

/* The bytes of a valid character, and its code point; 1 for anything else. */
static size_t character_decode(const char *at, size_t len, uint32_t *code)
{
    const unsigned char first = (unsigned char)*at;
    const size_t size = character_size(first);
    *code = size == 1 ? first : first & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        if (i >= len || !byte_continues(at[i]))
            return 1;
        *code = *code << 6 | ((unsigned char)at[i] & 0x3f);
    }
    return size;
}

size_t columns_of_next(const char *at, size_t len, size_t *columns)
{
    uint32_t code;
    size_t size;
    *columns = 1;
    if ((unsigned char)*at < 0x80)
        return 1;
    size = character_decode(at, len, &code);
    if (size > 1) {
        const int width = wcwidth((wchar_t)code);
        *columns = width < 0 ? 1 : (size_t)width;
        return size;
    }
    /* a terminal shows one mark for the broken pieces of a character */
    while (size < len && byte_continues(at[size]))
        size++;
    return size;
}
