#ifndef DDP_TRAINER_DEVICE_PLUGIN_H
#define DDP_TRAINER_DEVICE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#include "trainer/device/comm.h"
#include "trainer/device/device.h"

/* The interface of a plugin: a shared library with a device, libddp_cuda.so. It is loaded from
 * DDP_CUDA_PLUGIN if that is set, else from the program's directory, else from ../lib/ddp beside that
 * directory. It is loaded once and never unloaded. The library exports plugin_entry only. */

#define PLUGIN_ABI 11 /* must grow with every change of this header, device.h or comm.h */
#define PLUGIN_ENTRY "ddp_plugin"

struct plugin {
    uint32_t abi;
    uint32_t size;    /* size of this struct */
    const char *name; /* "cuda" */
    /* Versions that it was built with, for people: "CUDA 13.0, NCCL 2.28.9, cuDNN 9.19.0". */
    const char *version;
    int nccl_version;    /* version of NCCL as a number, such as 22809; 0: there is none */
    const char *no_nccl; /* why there is none; NULL: the plugin is built without it */
    /* Opens the device. UNAVAILABLE: there is no such hardware, or the driver is too old; the message says
     * which. */
    enum err_code (*open)(struct device **out, struct err *e);
};

/* Returns NULL if the plugin's ABI is not `abi`. */
typedef const struct plugin *(*plugin_entry)(uint32_t abi);

/* Sets *out to the plugin, which stays loaded. UNAVAILABLE: there is no plugin, it cannot be loaded, or its
 * ABI is another one; the message says which, and which files were tried. */
MUST_CHECK enum err_code plugin_load(const struct plugin **out, struct err *e);

#endif
