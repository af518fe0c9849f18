#ifndef DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_H
#define DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_H

#include "trainer/device/comm.h"

/* The collectives of comm.h by NCCL. They run on a stream of their own beside the device's stream. */

extern const struct comm_ops nccl_comm_ops;

#endif
