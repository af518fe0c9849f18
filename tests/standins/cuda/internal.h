#ifndef DDP_TESTS_STANDINS_CUDA_INTERNAL_H
#define DDP_TESTS_STANDINS_CUDA_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "emulate.h"
#include "include/cuda_runtime_api.h"

/* What the emulator's files share. All of it is under one lock, which every call of the runtime takes
 * (runtime_enter) and gives back (runtime_leave). */

void runtime_enter(void);
/* `error` is also what cudaGetLastError will say; host memory only from here on. */
cudaError_t runtime_leave(cudaError_t error);
/* Counts a call that can fail: an error that sticks, or the one that was asked for (DDP_EMULATED_FAULT). */
cudaError_t call_check(void);
/* Something that cannot be mended went wrong: every later call says so. Logged once. */
void runtime_break(cudaError_t error, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool runtime_broken(void);

/* Of DDP_EMULATED_SEED; 0: everything in its natural order, at once. */
uint64_t emulated_seed(void);
uint64_t emulated_draw(uint64_t below);

extern const struct cudaDeviceProp device_properties;

/* ---- memory.c */
bool memory_holds(const void *p, size_t bytes); /* of the device */
bool memory_is_pinned(const void *p, size_t bytes);
void memory_open(void); /* for what runs on the device */
void memory_close(void);
/* Of an address that a kernel must not touch: whose it is nearly, for people. */
void memory_explain(const void *p, char *out, size_t cap);

/* ---- block.c */
struct kernel_call {
    const char *name;
    unsigned grid[3], block[3];
    size_t shared;
    void (*call)(void *arguments);
};
/* All blocks; a program's error breaks the runtime. */
void block_run_all(const struct kernel_call *k, void *arguments);
const char *block_running(void); /* the kernel's name; NULL: none */

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
/* Into the stream, or into the graph that it is captured into. */
cudaError_t stream_put(cudaStream_t stream, struct operation *o);
cudaError_t stream_put_all(cudaStream_t stream, const struct operations *from);
bool stream_is_known(cudaStream_t stream);
bool stream_is_captured(cudaStream_t stream);
/* A call that must not be made while any stream is captured: ends the capture. */
cudaError_t stream_forbid_capture(void);
cudaError_t stream_drain_all(void);

#endif
