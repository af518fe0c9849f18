#ifndef DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_H
#define DDP_TRAINER_DEVICE_CUDA_NCCL_NCCL_H

#include "trainer/device/comm.h"

/* The collectives of comm.h by NCCL. They run on a stream of their own beside the device's stream. */

/* Opens the library, once in the life of the process. UNAVAILABLE: there is none; the message says why. */
MUST_CHECK enum err_code nccl_open(struct err *e);
extern const struct comm_ops nccl_comm_ops; /* for a process in which nccl_open succeeds */

#endif
