#ifndef DDP_TESTS_STANDINS_CUDA_INCLUDE_EMULATED_BLOCK_H
#define DDP_TESTS_STANDINS_CUDA_INCLUDE_EMULATED_BLOCK_H

#include <stddef.h>

#include "cuda_runtime_api.h"

/* The functions of ../block.c that the threads of a kernel call, and the call that launches a kernel. */

#ifdef __cplusplus
extern "C" {
#endif

struct emulated_index {
    unsigned x, y, z;
};
struct emulated_place {
    struct emulated_index thread, block, threads, blocks;
};
extern const struct emulated_place *emulated_here; /* the place of the running thread */

enum emulated_kind { EMULATED_SYNC, EMULATED_SHUFFLE, EMULATED_VOTE, EMULATED_MMA };

void *emulated_dynamic_shared(void);
void emulated_barrier(const char *file, int line);
int emulated_lane(void);
/* Shows this lane's bytes to all lanes of the mask. All lanes pass the same number of bytes, at most 32. Returns an
 * array in which the bytes of lane i begin at 32 i; it is valid until the lane's next exchange. */
const unsigned char *emulated_exchange(enum emulated_kind kind, unsigned mask, const void *mine, size_t bytes,
                                       const char *file, int line);
/* Begins an asynchronous copy. With a seed, it is drawn whether the copy is done now or when the thread waits for it;
 * without a seed it is done when the thread waits. from NULL: fills with zeros. */
void emulated_copy_begin(void *to, const void *from, size_t bytes);
void emulated_copy_wait(void);
/* Ends the running thread and its launch. The message says what the kernel did wrong. */
void emulated_trap(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Launches a kernel. cudaGetLastError returns its error. The arguments are copied. */
void emulated_start(const char *name, const void *kernel, const unsigned grid[3], const unsigned block[3],
                    size_t shared, cudaStream_t stream, void (*call)(void *arguments), const void *arguments,
                    size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
