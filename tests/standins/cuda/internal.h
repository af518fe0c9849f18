#ifndef DDP_TESTS_STANDINS_CUDA_INTERNAL_H
#define DDP_TESTS_STANDINS_CUDA_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "emulate.h"
#include "include/cuda_runtime_api.h"

/* Shared by the emulator's files. One lock guards everything: every call of the runtime takes it
 * (runtime_enter) and gives it back (runtime_leave). */

void runtime_enter(void);
/* Releases the lock and returns `error`, which cudaGetLastError then returns, too. After this call, only host
 * memory may be accessed. */
cudaError_t runtime_leave(cudaError_t error);
/* Counts a call that can fail. Returns the permanent error, or the one that DDP_EMULATED_FAULT asks for at
 * this call. */
cudaError_t call_check(void);
/* Sets a permanent error, which every later call returns, and logs it once. */
void runtime_break(cudaError_t error, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool runtime_broken(void);

/* Returns DDP_EMULATED_SEED. 0: operations run at once, in the order in which they were queued. */
uint64_t emulated_seed(void);
uint64_t emulated_draw(uint64_t below);

extern const struct cudaDeviceProp device_properties;

/* ---- memory.c */
bool memory_holds(const void *p, size_t bytes); /* returns whether it is device memory */
bool memory_is_pinned(const void *p, size_t bytes);
void memory_open(void); /* makes device memory accessible, while an operation runs on the device */
void memory_close(void);
/* Describes, for a message, the allocation next to an address that a kernel must not access. */
void memory_explain(const void *p, char *out, size_t cap);

/* ---- block.c */
struct kernel_call {
    const char *name;
    unsigned grid[3], block[3];
    size_t shared;
    void (*call)(void *arguments);
};
/* Runs all blocks of a kernel. An error of the kernel becomes the runtime's permanent error. */
void block_run_all(const struct kernel_call *k, void *arguments);
const char *block_running(void); /* returns the name of the running kernel, or NULL */

/* ---- stream.c */
struct operation {
    struct operation *next;
    emulated_run *run;
    const char *name;
    size_t bytes;
    _Alignas(64) unsigned char closure[];
};
struct operations {
    struct operation *first, **last;
};
struct operation *operation_create(const char *name, emulated_run *run, const void *closure, size_t bytes);
/* Queues the operation in the stream, or records it in the graph into which the stream is captured. */
cudaError_t stream_put(cudaStream_t stream, struct operation *o);
cudaError_t stream_put_all(cudaStream_t stream, const struct operations *from);
extern long runtime_handles; /* streams and events that exist */
bool stream_is_known(cudaStream_t stream);
bool stream_is_captured(cudaStream_t stream);
/* For calls that are forbidden while a stream is captured: ends the capture and returns an error. */
cudaError_t stream_forbid_capture(void);
cudaError_t stream_drain_all(void);

#endif
