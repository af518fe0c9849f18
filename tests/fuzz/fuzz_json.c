#include <stdint.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Any input gives either a message or a value. Any input that is written as a JSON string is valid JSON. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf out = {0};
    struct jout o = {.buf = &out};
    struct err e = {0};
    json_t *value = NULL;

    if (json_parse((const char *)data, size, 1 << 20, &value, &e))
        BUG_ON(!e.code || !e.msg[0]);
    json_release(&value);
    jout_open(&o, NULL, '[');
    jout_text_n(&o, NULL, (const char *)data, size);
    jout_close(&o, ']');
    if (!memchr(data, 0, size) && json_parse(out.data, out.len, 1 << 22, &value, &e))
        err_bug(__FILE__, __LINE__, e.msg);
    json_release(&value);
    buf_release(&out);
    return 0;
}
