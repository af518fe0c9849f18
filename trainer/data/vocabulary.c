#include "trainer/data/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

#define SYMBOLS 0x110000 /* number of Unicode code points */
#define JSON_LIMIT ((size_t)32 << 20)

/* Returns the length of a character by its first byte; 0: no character begins with it. */
static size_t utf8_length(unsigned char first)
{
    return first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
}

size_t utf8_decode(const char *text, size_t size, uint32_t *symbol)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = (unsigned char)text[0];
    size_t length = utf8_length(first);
    if (length < 2 || length > size) {
        *symbol = first;
        return length == 1 ? 1 : 0;
    }
    uint32_t value = first & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        unsigned char next = (unsigned char)text[i];
        if (next >> 6 != 2)
            return 0;
        value = value << 6 | (next & 0x3f);
    }
    *symbol = value;
    return value < least[length] || value >= SYMBOLS || (value >= 0xd800 && value < 0xe000) ? 0 : length;
}

size_t utf8_whole(const char *text, size_t size)
{
    for (size_t back = 1; back < 4 && back <= size; back++) {
        unsigned char first = (unsigned char)text[size - back];
        if (first >> 6 != 2) /* it begins a character, or is invalid */
            return utf8_length(first) > back ? size - back : size;
    }
    return size;
}

size_t utf8_encode(uint32_t symbol, char out[4])
{
    size_t length = symbol < 0x80 ? 1 : symbol < 0x800 ? 2 : symbol < 0x10000 ? 3 : 4;
    static const unsigned char mark[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = length; i-- > 1; symbol >>= 6)
        out[i] = (char)(0x80 | (symbol & 0x3f));
    out[0] = (char)(mark[length] | symbol);
    return length;
}

enum err_code vocabulary_mark(uint8_t *seen, const char *text, size_t size, uint64_t first, const char *where,
                              struct err *e)
{
    for (size_t at = 0; at < size;) {
        uint32_t symbol;
        size_t length = utf8_decode(text + at, size - at, &symbol);
        if (length == 0 || symbol == 0)
            return err_set(e, ERR_DATA_LOSS,
                           "%s: byte %llu is %s: to train on any bytes, set train.data.symbols to byte",
                           where, (unsigned long long)(first + at), length ? "a NUL" : "not UTF-8");
        seen[symbol / 8] |= (uint8_t)(1 << symbol % 8);
        at += length;
    }
    return ERR_OK;
}

void vocabulary_collect(struct vocabulary *v, const uint8_t *seen)
{
    *v = (struct vocabulary){.type = SYMBOL_CHARACTER};
    for (uint32_t i = 0; i < SYMBOLS / 8; i++)
        v->count += __builtin_popcount(seen[i]);
    v->symbols = xcalloc((size_t)v->count + 1, sizeof(*v->symbols));
    int64_t n = 0;
    for (uint32_t i = 0; i < SYMBOLS / 8; i++)
        for (uint32_t bits = seen[i]; bits; bits &= bits - 1)
            v->symbols[n++] = 8 * i + (uint32_t)__builtin_ctz(bits);
}

enum err_code vocabulary_scan(struct vocabulary *out, enum symbol_type type, const char *text, size_t size,
                              const char *where, struct err *e)
{
    *out = (struct vocabulary){.type = type};
    if (type == SYMBOL_BYTE) {
        out->count = 256;
        return ERR_OK;
    }
    uint8_t *seen = xcalloc(VOCABULARY_SEEN, 1);
    enum err_code code = vocabulary_mark(seen, text, size, 0, where, e);
    if (code == ERR_OK)
        vocabulary_collect(out, seen);
    free(seen);
    return code;
}

void vocabulary_release(struct vocabulary *v)
{
    free(v->symbols);
    *v = (struct vocabulary){0};
}

int32_t vocabulary_find(const struct vocabulary *v, uint32_t symbol)
{
    if (v->type == SYMBOL_BYTE)
        return symbol < 256 ? (int32_t)symbol : -1;
    int64_t low = 0, high = v->count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (v->symbols[middle] < symbol)
            low = middle + 1;
        else
            high = middle;
    }
    return low < v->count && v->symbols[low] == symbol ? (int32_t)low : -1;
}

void vocabulary_put(const struct vocabulary *v, int32_t number, struct buf *out)
{
    char text[4];
    if (v->type == SYMBOL_BYTE)
        buf_putc(out, (char)number);
    else
        buf_append(out, text, utf8_encode(v->symbols[number], text));
}

static enum err_code text_encode(const struct vocabulary *v, const char *text, size_t size, int32_t *to,
                                 size_t *count, struct err *e)
{
    size_t n = 0;
    for (size_t at = 0; at < size;) {
        uint32_t symbol = (unsigned char)text[at];
        size_t length = v->type == SYMBOL_BYTE ? 1 : utf8_decode(text + at, size - at, &symbol);
        if (length == 0)
            return err_set(e, ERR_INVALID_ARGUMENT, "byte %zu of the text is not UTF-8", at);
        to[n] = vocabulary_find(v, symbol);
        if (to[n++] < 0)
            return err_set(e, ERR_INVALID_ARGUMENT, "'%.*s' is not one of the %lld symbols of the model",
                           (int)length, text + at, (long long)v->count);
        at += length;
    }
    *count = n;
    return ERR_OK;
}

enum err_code vocabulary_encode(const struct vocabulary *v, const char *text, size_t size, int32_t **numbers,
                                size_t *count, struct err *e)
{
    int32_t *list = xcalloc(size + 1, sizeof(*list));
    if (text_encode(v, text, size, list, count, e)) {
        free(list);
        return e->code;
    }
    *numbers = list;
    return ERR_OK;
}

void vocabulary_print(const struct vocabulary *v, struct buf *out)
{
    struct jout o = {.buf = out};
    jout_open(&o, NULL, '{');
    for (int64_t i = 0; i < v->count; i++) {
        char key[5] = "";
        utf8_encode(v->symbols[i], key);
        jout_int(&o, key, i);
    }
    jout_close(&o, '}');
    buf_putc(out, '\n');
}

static int by_symbol(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

enum err_code vocabulary_parse(struct vocabulary *out, const char *json, size_t size, const char *where,
                               struct err *e)
{
    CLEANUP(json_release) json_t *root = NULL;
    const char *key;
    json_t *value;
    *out = (struct vocabulary){.type = SYMBOL_CHARACTER};
    if (json_parse(json, size, JSON_LIMIT, &root, e)) {
        e->code = ERR_DATA_LOSS;
        return err_wrap(e, "%s", where);
    }
    out->symbols = xcalloc(json_object_size(root) + 1, sizeof(*out->symbols));
    json_object_foreach(root, key, value)
    {
        uint32_t *symbol = &out->symbols[out->count];
        if (!*key || utf8_decode(key, strlen(key), symbol) != strlen(key))
            return err_set(e, ERR_DATA_LOSS, "%s: expected a single character, got '%.40s'", where, key);
        out->count++;
    }
    /* The numbers follow from the order of the characters. The numbers in the file are only compared with
     * them. */
    qsort(out->symbols, (size_t)out->count, sizeof(*out->symbols), by_symbol);
    json_object_foreach(root, key, value)
    {
        uint32_t symbol = 0;
        utf8_decode(key, strlen(key), &symbol);
        if (!json_is_integer(value) || json_integer_value(value) != vocabulary_find(out, symbol))
            return err_set(e, ERR_DATA_LOSS,
                           "%s: '%s' does not have the number that follows from the order of characters",
                           where, key);
    }
    return out->count ? ERR_OK : err_set(e, ERR_DATA_LOSS, "%s: has no characters", where);
}
