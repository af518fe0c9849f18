#ifndef DDP_TRAINER_DEVICE_CUDA_KERNELS_KERNELS_H
#define DDP_TRAINER_DEVICE_CUDA_KERNELS_KERNELS_H

#include "trainer/device/cuda/kernels/dense.h"
#include "trainer/device/cuda/kernels/digest.h"
#include "trainer/device/cuda/kernels/embed.h"
#include "trainer/device/cuda/kernels/flat.h"
#include "trainer/device/cuda/kernels/loss.h"
#include "trainer/device/cuda/kernels/muon.h"
#include "trainer/device/cuda/kernels/norm.h"
#include "trainer/device/cuda/kernels/norm_grad.h"
#include "trainer/device/cuda/kernels/optim.h"
#include "trainer/device/cuda/kernels/workspace.h"

/* The kernels of device.h's operations, one launcher each. A launcher puts work on the stream; all arrays are in device
 * memory. It returns cudaGetLastError(), or cudaErrorInvalidValue for arguments that no kernel supports: a norm's row
 * above 2^20 elements, or types that are not `type` and `kept` of one device (both float, or both bf16). Sums have a
 * fixed order that depends on shapes only, so they give the same bits every time. Any size works; rows and arrays at
 * 16-byte boundaries are faster. */

#endif
