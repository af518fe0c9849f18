#include "trainer/device/cuda/cudnn/cudnn_engine.h"

/* Numbers of cudnnBackendKnobType_t, because older headers lack some of the names. */
enum {
    STAGES = 14,
    KERNEL_CFG = 24,
    TILE_CGA_M = 27,
    STREAM_K = 38,
    TILE_M = 40,
    TILE_N = 41,
};

/* On Blackwell (10.0 and 10.3) cuDNN proposes only a general engine, which is slow. Engine 5 has the fast kernels.
 * These are the settings with which NVIDIA's cudnn-frontend selects its deterministic kernels; they changed with
 * version 9.23. */
const struct cudnn_engine *cudnn_engine_backward(size_t version, int capability)
{
    static const struct cudnn_engine since_918 = {5, 2, {{KERNEL_CFG, 31}, {STAGES, 2}}};
    static const struct cudnn_engine since_923 = {
        5, 6, {{TILE_M, 3}, {TILE_N, 2}, {KERNEL_CFG, 2}, {STREAM_K, 0}, {TILE_CGA_M, 0}, {STAGES, 2}}};
    if (capability < 100 || capability > 103 || version < 91800)
        return NULL;
    return version < 92300 ? &since_918 : &since_923;
}
