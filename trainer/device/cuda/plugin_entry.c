/* The entry point of the plugin: see trainer/device/plugin.h. */
#include "trainer/device/cuda/plugin_entry.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/mem.h"
#include "trainer/device/cuda/attention.h"
#include "trainer/device/cuda/cuda.h"
#include "trainer/device/cuda/nccl/nccl.h"

/* Names the versions of all libraries that may change the bits of a training. */
static void plugin_describe(char *out, size_t size, int nccl)
{
    CLEANUP(buf_release) struct buf text = {0};
    char cudnn[32];
    buf_printf(&text, "CUDA %d.%d", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (nccl)
        buf_printf(&text, ", NCCL %d.%d.%d", nccl / 10000, nccl / 100 % 100, nccl % 100);
    attention_version(cudnn);
    if (cudnn[0])
        buf_printf(&text, ", %s", cudnn);
    (void)snprintf(out, size, "%s", text.data);
}

const struct plugin *ddp_plugin(uint32_t abi)
{
    static char version[96];
    static struct plugin plugin = {
        .abi = PLUGIN_ABI, .size = sizeof(plugin), .name = "cuda", .version = version, .open = cuda_open};
#ifdef DDP_CUDA_NCCL
    static struct err why;
    if (nccl_open(&why) == ERR_OK)
        plugin.nccl_version = nccl_comm_ops.version();
    else
        plugin.no_nccl = why.msg;
#endif
    plugin_describe(version, sizeof(version), plugin.nccl_version);
    return abi == PLUGIN_ABI ? &plugin : NULL;
}
