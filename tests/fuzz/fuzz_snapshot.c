#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "trainer/snapshot/divided.h"
#include "trainer/snapshot/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As of a part with divided moments: the ranges lie in the tensors of the layout, and are as long as the file's tensors. */
static void parse_ranges(struct safetensors *f)
{
    static const int64_t matrix[] = {2, 3}, vector[] = {2};
    static const struct snapshot_tensor tensors[] = {{"a", 2, matrix, 0, 6}, {"a.b", 1, vector, 16, 2}};
    static const char *const moments[] = {"m", "b.m"};
    static const struct snapshot_layout layout = {
        .tensors = tensors, .tensor_count = 2, .count = 32, .moments = moments, .moment_count = 2};
    struct divided_file d = {.f = f};
    struct err e = {0};

    if (divided_parse(&d, &layout, &e))
        BUG_ON(!e.code || !e.msg[0]);
    for (size_t i = 0; i < d.ranges.count; i++) {
        const struct snapshot_range *r = &d.ranges.list[i];
        const size_t count = tensors[r->tensor].count;
        BUG_ON(r->moment > 1 || r->count == 0 || r->first >= count || r->count > count - r->first);
        BUG_ON(r->count * sizeof(float) != f->tensors[i].to - f->tensors[i].from);
    }
    divided_release(&d.ranges);
}

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
        parse_ranges(&f);
    }
    json_release(&f.metadata);
    free(f.tensors);
    free(f.path);
    return 0;
}
