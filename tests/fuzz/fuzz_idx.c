#include <stdint.h>

#include "trainer/data/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Any input gives either a message or an array that lies inside the input. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct idx_array a = {0};
    struct err e = {0};
    int64_t count = 1;

    if (idx_parse(&a, data, size, &e)) {
        BUG_ON(!e.code || !e.msg[0]);
        return 0;
    }
    for (int i = 0; i < a.dims; i++)
        count *= a.shape[i];
    BUG_ON(a.count != count || a.count < 0 || (uint64_t)a.count > size);
    if (a.count)
        BUG_ON(a.data[a.count - 1] != data[size - 1]);
    idx_release(&a);
    return 0;
}
