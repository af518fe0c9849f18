/* A plugin of an earlier build: it knows what it is asked for is not what it has. */
#include "trainer/device/plugin.h"

const struct plugin *ddp_plugin(uint32_t abi);
const struct plugin *ddp_plugin(uint32_t abi)
{
    static const struct plugin old = {.abi = PLUGIN_ABI + 1, .size = sizeof(old), .name = "old"};
    return abi == old.abi ? &old : NULL;
}
