#ifndef DDP_TRAINER_DEVICE_CUDA_CUDNN_CUDNN_ENGINE_H
#define DDP_TRAINER_DEVICE_CUDA_CUDNN_CUDNN_ENGINE_H

#include <stddef.h>
#include <stdint.h>

/* An engine of cuDNN with its settings, for cases in which cuDNN itself does not propose the right engine. */

enum { CUDNN_KNOBS = 6 };
struct cudnn_engine {
    int64_t number;
    int knobs;
    struct cudnn_knob {
        int type; /* a cudnnBackendKnobType_t */
        int64_t value;
    } knob[CUDNN_KNOBS];
};

/* Returns the engine for a gradient of attention that gives the same bits every time. version: as in cudnn_fault;
 * capability: of the GPU, 90 for 9.0. NULL: use the engines that cuDNN proposes. */
const struct cudnn_engine *cudnn_engine_backward(size_t version, int capability);

#endif
