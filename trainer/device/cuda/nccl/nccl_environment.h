#ifndef DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_ENVIRONMENT_H
#define DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_ENVIRONMENT_H

/* Sets the environment variables that NCCL reads, except those that the user has set: one algorithm and one protocol,
 * so that sums repeat bit for bit; no RAS service, which listens on a port; and the network interface that has
 * DDP_NODE_ADDRESS. Call it before the first call of NCCL and while the process has one thread: when the device is
 * opened. */
void nccl_environment(void);

#endif
