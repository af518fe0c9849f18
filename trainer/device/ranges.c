#include "trainer/device/ranges.h"

enum err_code device_ranges_open(struct device_ranges *out, struct device *d, struct device_range *items,
                                 size_t count, struct err *e)
{
    const size_t line = 16 / sizeof(float);
    struct device_ranges r = {.count = count, .aligned = true};
    void *memory = NULL;
    for (size_t i = 0; i < count; i++) {
        BUG_ON(items[i].count == 0);
        items[i].blocks_before = r.blocks;
        r.blocks += (items[i].count + DEVICE_RANGE_BLOCK - 1) / DEVICE_RANGE_BLOCK;
        r.aligned &= items[i].offset % line == 0 && items[i].second % line == 0;
    }
    if (count > 0 && device_alloc(d, count * sizeof(*items), "ranges of the parameters", &memory, e))
        return e->code;
    if (count > 0)
        d->ops->upload(d, memory, items, count * sizeof(*items));
    r.items = memory;
    *out = r;
    return ERR_OK;
}

void device_ranges_close(struct device_ranges *r, struct device *d)
{
    d->ops->free(d, r->items);
    *r = (struct device_ranges){0};
}
