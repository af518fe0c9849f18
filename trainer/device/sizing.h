#ifndef DDP_TRAINER_DEVICE_SIZING_H
#define DDP_TRAINER_DEVICE_SIZING_H

#include "base/isa.h"
#include "trainer/device/device.h"

/* A device that lays out memory, but has none: model, optimizer and engine open on it as they do for training, and take the memory
 * that they would take. What it allocates is address space that nobody may touch; it is returned when the process ends. Nothing
 * can be computed with it. */
struct sizing_device {
    struct device *device; /* the caller closes it; it must not outlive this struct */
    struct device_ops ops;
    struct device gpu;
};

/* gpu_memory: bytes of the GPU that is meant; 0: a CPU is meant, with so many threads. isa: what the job limits CPUs to;
 * ISA_AUTO: they are like this machine's. The internal memory of a GPU's libraries is not known here. */
MUST_CHECK enum err_code sizing_open(struct sizing_device *out, size_t gpu_memory, int threads, enum isa isa,
                                     struct err *e);

#endif
