#ifndef DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_H
#define DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_H

#include <cuda_runtime_api.h>

#include "trainer/device/comm.h"

/* comm.h over NCCL, on a stream of its own beside the device's. */

extern const struct comm_ops nccl_comm_ops;

/* What NCCL reads from the environment, where the user has not said it: one algorithm and one protocol, so
 * that sums repeat bit for bit, no service that answers anybody, and the interface of DDP_NODE_ADDRESS.
 * Before the first call of NCCL, and while
 * the process has one thread: when the device is opened. */
void nccl_environment(void);

/* The device's: what it computes is put there. */
cudaStream_t cuda_stream(struct device *d);
/* What went wrong on it since its last wait, which still says so, too. */
enum err_code cuda_amiss(struct device *d, struct err *e);

#endif
