#ifndef DDP_TRAINER_DEVICE_CUDA_CUDNN_CUDNN_FAULTS_H
#define DDP_TRAINER_DEVICE_CUDA_CUDNN_CUDNN_FAULTS_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/device/cuda/cudnn/cudnn_attention.h"

/* Shapes of attention that a version of cuDNN accepts and computes wrongly. cuDNN itself does not refuse them;
 * NVIDIA's cudnn-frontend does. version: cudnnGetVersion, 91900 for 9.19.0. Returns what is wrong, or NULL if no
 * fault is known. */
const char *cudnn_fault(size_t version, const struct cudnn_heads *n, bool backward);

#endif
