#include <stdint.h>

#include "base/mem.h"
#include "trainer/snapshot/gpt2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Any input gives either a message or a GPT-2 model. The model's sizes can be multiplied without overflow,
 * and its printed configuration reads back the same. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct train_spec spec = {0}, back = {0};
    struct err e = {0};

    if (gpt2_config_parse(&spec, (const char *)data, size, "config.json", &e)) {
        BUG_ON(!e.code || !e.msg[0]);
        return 0;
    }
    BUG_ON(spec.model.type != MODEL_GPT || spec.model.dropout != 0.0);
    BUG_ON(spec.model.heads < 1 || spec.model.width % spec.model.heads || spec.model.vocab < 1);
    double rows = (double)spec.model.context * (double)spec.model.width * 16.0 * sizeof(float);
    BUG_ON(rows * (double)spec.model.layers > 0x1p63);
    gpt2_config_print(&text, &spec, spec.model.vocab);
    BUG_ON(gpt2_config_parse(&back, text.data, text.len, "config.json", &e));
    BUG_ON(back.model.layers != spec.model.layers || back.model.heads != spec.model.heads);
    BUG_ON(back.model.width != spec.model.width || back.model.context != spec.model.context);
    BUG_ON(back.model.vocab != spec.model.vocab || back.model.tied != spec.model.tied);
    BUG_ON(back.model.activation != spec.model.activation || back.data.type != spec.data.type);
    BUG_ON(back.data.type == DATA_TEXT && back.data.symbols != spec.data.symbols);
    return 0;
}
