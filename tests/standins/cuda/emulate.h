#ifndef DDP_TESTS_STANDINS_CUDA_EMULATE_H
#define DDP_TESTS_STANDINS_CUDA_EMULATE_H

#include <stdbool.h>
#include <stddef.h>

#include "include/cuda_runtime_api.h"

/* For stand-ins of other libraries (NCCL), and for the emulator's own tests. */

#ifdef __cplusplus
extern "C" {
#endif

/* Does a queued piece of work: true when it is done; false: not yet, ask again. Device memory may be touched
 * here, and by kernels, only. The closure is the queue's own copy, aligned to 64 bytes. */
typedef bool emulated_run(void *closure);

/* Behind what the stream was told so far. The name is kept as it is. */
cudaError_t emulated_enqueue(cudaStream_t stream, const char *name, emulated_run *run, const void *closure,
                             size_t bytes);

/* Every later call of the runtime fails with that error, as after a fault on a GPU. */
void emulated_break(cudaError_t error, const char *why);

/* For tests: the last error that a program's own fault gave rise to, as it was logged; "" without one. */
const char *emulated_fault(void);
/* As in a new process: the error that stuck, the seed, and the call that is to fail (0: none) are set. */
void emulated_restart(unsigned long long seed, unsigned long long fault);
size_t emulated_device_bytes(void); /* allocated now */

#ifdef __cplusplus
}
#endif

#endif
