#ifndef DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_ENVIRONMENT_H
#define DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_ENVIRONMENT_H

#include <stdbool.h>

/* Sets the environment variables that NCCL reads, except those that the user has set: no RAS service, which listens on
 * a port; the network interface that has DDP_NODE_ADDRESS; and with `reproducible` one algorithm and one protocol, so
 * that sums repeat bit for bit. Prepare of comm.h. */
void nccl_environment(bool reproducible);

#endif
