#ifndef DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_CLOSE_H
#define DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_CLOSE_H

#include "base/err.h"
#include "trainer/device/comm.h"

/* Close of comm.h: ends the communicator and frees it, also on errors. DEADLINE_EXCEEDED: NCCL did not return within
 * timeout_ms. A thread is then still inside NCCL, and the process must exit. INTERNAL: NCCL reports an error. */
MUST_CHECK enum err_code nccl_close(struct comm *c, int timeout_ms, struct err *e);

#endif
