#ifndef DDP_TRAINER_DEVICE_CUDA_PLUGIN_ENTRY_H
#define DDP_TRAINER_DEVICE_CUDA_PLUGIN_ENTRY_H

#include "trainer/device/plugin.h"

/* The only symbol that libddp_cuda.so exports: PLUGIN_ENTRY, a plugin_entry of plugin.h. Returns NULL if the program
 * wants another PLUGIN_ABI than the plugin was built with. */
__attribute__((visibility("default"))) const struct plugin *ddp_plugin(uint32_t abi);

#endif
