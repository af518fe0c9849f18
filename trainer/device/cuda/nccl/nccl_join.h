#ifndef DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_JOIN_H
#define DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_JOIN_H

#include "trainer/device/cuda/nccl/nccl_wait.h"

/* A join: the device's stream waits for the sums on NCCL's stream. The wait is measured on the device, because the host
 * does not wait. */

cudaError_t nccl_join_open(struct comm *c);
void nccl_join_release(struct comm *c);
cudaError_t nccl_join(struct comm *c, cudaEvent_t to); /* to: on the communicator's stream */
int64_t nccl_joined_ns(struct comm *c);                /* as comm.h's joined_ns */

#endif
