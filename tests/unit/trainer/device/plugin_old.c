/* A plugin with an older ABI: it returns NULL, because it does not have the ABI that it is asked for. */
#include "trainer/device/plugin.h"

const struct plugin *ddp_plugin(uint32_t abi);
const struct plugin *ddp_plugin(uint32_t abi)
{
    static const struct plugin old = {.abi = PLUGIN_ABI + 1, .size = sizeof(old), .name = "old"};
    return abi == old.abi ? &old : NULL;
}
