#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "trainer/data/vocabulary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_order(const struct vocabulary *v)
{
    for (int64_t i = 0; i < v->count; i++) {
        BUG_ON(v->symbols[i] >= 0x110000 || (i && v->symbols[i] <= v->symbols[i - 1]));
        BUG_ON(vocabulary_find(v, v->symbols[i]) != i);
    }
}

/* Reads the input as vocab.json: symbols are in rising order, and read back the same after printing. */
static void as_json(const char *text, size_t size)
{
    CLEANUP(vocabulary_release) struct vocabulary v = {0}, back = {0};
    CLEANUP(buf_release) struct buf json = {0};
    struct err e = {0};

    if (vocabulary_parse(&v, text, size, "vocab.json", &e)) {
        BUG_ON(!e.code || !e.msg[0]);
        return;
    }
    BUG_ON(v.count < 1);
    check_order(&v);
    vocabulary_print(&v, &json);
    BUG_ON(vocabulary_parse(&back, json.data, json.len, "vocab.json", &e));
    BUG_ON(back.count != v.count || memcmp(back.symbols, v.symbols, (size_t)v.count * sizeof(*v.symbols)));
}

/* Reads the input as a text: encoded with its own symbols and decoded again, it is the same. */
static void as_text(const char *text, size_t size)
{
    CLEANUP(vocabulary_release) struct vocabulary v = {0};
    CLEANUP(buf_release) struct buf back = {0};
    struct err e = {0};
    int32_t *numbers = NULL;
    size_t count = 0;

    if (vocabulary_scan(&v, SYMBOL_CHARACTER, text, size, "text", &e)) {
        BUG_ON(!e.code || !e.msg[0]);
        return;
    }
    check_order(&v);
    BUG_ON(vocabulary_encode(&v, text, size, &numbers, &count, &e));
    for (size_t i = 0; i < count; i++)
        vocabulary_put(&v, numbers[i], &back);
    BUG_ON(back.len != size || (size && memcmp(back.data, text, size)));
    free(numbers);
}

/* Each input is tried in one way only, because a scan is slow: it looks at one bit for each code point. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size && data[0] == '{')
        as_json((const char *)data, size);
    else
        as_text((const char *)data, size);
    return 0;
}
