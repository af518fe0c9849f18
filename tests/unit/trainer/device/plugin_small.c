/* A plugin that accepts any ABI, but was built with another header. */
#include "trainer/device/plugin.h"

const struct plugin *ddp_plugin(uint32_t abi);
const struct plugin *ddp_plugin(uint32_t abi)
{
    static struct plugin small = {.size = sizeof(small) - 8, .name = "small"};
    small.abi = abi;
    return &small;
}
