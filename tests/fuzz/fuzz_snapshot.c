#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "trainer/snapshot/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first two bytes give the size of the data behind the header; the rest is the header. If it parses, the
 * tensors follow each other without gaps and fill the data. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors f = {.fd = -1};
    struct err e = {0};
    uint64_t end = 0;

    if (size < 2)
        return 0;
    f.path = xstrdup("snapshot");
    f.data_size = (uint64_t)data[0] << 8 | data[1];
    if (safetensors_parse(&f, (const char *)data + 2, size - 2, &e)) {
        BUG_ON(!e.code || !e.msg[0]);
    } else {
        for (size_t i = 0; i < f.count; i++) {
            const struct safetensor *t = &f.tensors[i];
            uint64_t bytes = t->type == SAFETENSORS_F32 ? 4 : 2;

            for (int d = 0; d < t->dims; d++)
                bytes *= (uint64_t)t->shape[d];
            BUG_ON(t->from != end || t->to < t->from);
            BUG_ON(t->type != SAFETENSORS_OTHER && t->to - t->from != bytes);
            end = t->to;
        }
        BUG_ON(end != f.data_size);
    }
    json_release(&f.metadata);
    free(f.tensors);
    free(f.path);
    return 0;
}
