#include <stdint.h>

#include "trainer/data/corpus.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Any input gives either a message or tokens that lie inside the input. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct corpus_tokens t = {0};
    struct err e = {0};

    if (corpus_parse_tokens(&t, data, size, &e)) {
        BUG_ON(!e.code || !e.msg[0]);
        return 0;
    }
    BUG_ON(t.count < 0 || t.offset > size || (size - t.offset) / 2 != (size_t)t.count);
    return 0;
}
