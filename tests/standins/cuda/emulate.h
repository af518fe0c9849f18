#ifndef DDP_TESTS_STANDINS_CUDA_EMULATE_H
#define DDP_TESTS_STANDINS_CUDA_EMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/cuda_runtime_api.h"

/* Functions for stand-ins of other libraries (NCCL), and for the emulator's own tests. */

#ifdef __cplusplus
extern "C" {
#endif

/* Runs a queued operation. Returns true when it has finished, false if it must be called again later. Only these
 * functions and kernels may access device memory. The closure is the queue's own copy, aligned to 64 bytes. */
typedef bool emulated_run(void *closure);

/* Queues an operation at the end of the stream. The name is not copied, so it must outlive the operation. */
cudaError_t emulated_enqueue(cudaStream_t stream, const char *name, emulated_run *run, const void *closure,
                             size_t bytes);

/* Lets the clock of events go on by this much. Only a running operation may call it. */
void emulated_pass(int64_t ns);

/* Makes every later call of the runtime fail with this error, as after a fault on a GPU. */
void emulated_break(cudaError_t error, const char *why);

/* For tests: returns the last logged error that the program itself caused, or "". */
const char *emulated_fault(void);
/* Resets the runtime to the state of a new process, with this seed. fault: the number of the call that is to
 * fail; 0: none. */
void emulated_restart(unsigned long long seed, unsigned long long fault);
/* Returns the first dimension of the grid of the last launch of a kernel with this name, and forgets it; 0: there was none. */
unsigned emulated_grid(const char *kernel);
/* The emulated plugin exports these two. */
__attribute__((visibility("default"))) size_t emulated_device_bytes(void); /* that are allocated */
__attribute__((visibility("default"))) long emulated_handles(void);        /* streams and events that exist */

#ifdef __cplusplus
}
#endif

#endif
