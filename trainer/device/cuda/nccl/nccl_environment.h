#ifndef DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_ENVIRONMENT_H
#define DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

/* Sets the environment variables that NCCL reads, except those that the user has set: no RAS service, which listens on
 * a port; the network interface that has DDP_NODE_ADDRESS, if it is the machine's only network for data; and with `reproducible` one algorithm and one protocol, so
 * that sums repeat bit for bit. Prepare of comm.h. */
void nccl_environment(bool reproducible);

/* Whether no other of the interfaces may carry data as well as `chosen` does. sys: as /sys/class/net. For tests. */
bool nccl_only_network(const char *sys, const char *const *names, size_t count, const char *chosen);

#endif
