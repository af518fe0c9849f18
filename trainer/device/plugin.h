#ifndef DDP_TRAINER_DEVICE_PLUGIN_H
#define DDP_TRAINER_DEVICE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#include "trainer/device/comm.h"
#include "trainer/device/device.h"

/* What a shared library brings that is loaded where its hardware is: libddp_cuda.so. It is looked for as
 * DDP_CUDA_PLUGIN says, else beside the program, else in ../lib/ddp from there; loaded once, never unloaded.
 * Everything it shows but plugin_entry is hidden. */

#define PLUGIN_ABI 3 /* grows with every change of this header, device.h or comm.h */
#define PLUGIN_ENTRY "ddp_plugin"

struct plugin {
    uint32_t abi;
    uint32_t size;       /* of this struct */
    const char *name;    /* "cuda" */
    const char *version; /* of what it was built with, for people: "CUDA 13.0, NCCL 2.28.9, cuDNN 9.19.0" */
    int nccl_version;    /* 22809; 0: without NCCL */
    /* UNAVAILABLE: no such hardware, or a driver too old; says which. */
    enum err_code (*open)(struct device **out, struct err *e);
};

/* NULL when the abi asked for is not the one that it has. */
typedef const struct plugin *(*plugin_entry)(uint32_t abi);

/* UNAVAILABLE: not there, cannot be loaded, or of another abi; says which, and where it was looked for. */
MUST_CHECK enum err_code plugin_load(const struct plugin **out, struct err *e);

#endif
