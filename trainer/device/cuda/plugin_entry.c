/* What the plugin shows: see trainer/device/plugin.h. */
#include "trainer/device/plugin.h"

#include <stdio.h>

#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/nccl.h"

__attribute__((visibility("default"))) const struct plugin *ddp_plugin(uint32_t abi);

const struct plugin *ddp_plugin(uint32_t abi)
{
    static char version[96];
    static struct plugin plugin = {
        .abi = PLUGIN_ABI, .size = sizeof(plugin), .name = "cuda", .version = version, .open = cuda_open};
    int n =
        snprintf(version, sizeof(version), "CUDA %d.%d", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    (void)n;
#ifdef DDP_CUDA_NCCL
    plugin.nccl_version = nccl_comm_ops.version();
    snprintf(version + n, sizeof(version) - (size_t)n, ", NCCL %d.%d.%d", plugin.nccl_version / 10000,
             plugin.nccl_version / 100 % 100, plugin.nccl_version % 100);
#endif
    return abi == PLUGIN_ABI ? &plugin : NULL;
}
