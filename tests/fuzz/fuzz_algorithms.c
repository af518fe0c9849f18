#include <stdint.h>

#include "base/mem.h"
#include "trainer/device/cuda/gemm/gemm_choices.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Any input gives either a message or choices whose text is the input again, up to the way numbers are written. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(gemm_choices_release) struct gemm_choices got = {0}, again = {0};
    CLEANUP(buf_release) struct buf text = {0};
    struct err e = {0};
    if (gemm_choices_parse(&got, "GPU", 13, (const char *)data, size, &e)) {
        BUG_ON(!e.code || !e.msg[0] || got.items);
        return 0;
    }
    gemm_choices_print(&got, "GPU", 13, &text);
    BUG_ON(text.len > size);
    BUG_ON(gemm_choices_parse(&again, "GPU", 13, text.data, text.len, &e) || again.count != got.count);
    return 0;
}
