#ifndef DDP_TESTS_STANDINS_CUDA_INCLUDE_EMULATED_BLOCK_H
#define DDP_TESTS_STANDINS_CUDA_INCLUDE_EMULATED_BLOCK_H

#include <stddef.h>

#include "cuda_runtime_api.h"

/* What a kernel's thread asks of the emulator (../block.c), and how a launch gets there. */

#ifdef __cplusplus
extern "C" {
#endif

struct emulated_index {
    unsigned x, y, z;
};
struct emulated_place {
    struct emulated_index thread, block, threads, blocks;
};
extern const struct emulated_place *emulated_here; /* of the thread that runs */

enum emulated_kind { EMULATED_SYNC, EMULATED_SHUFFLE, EMULATED_VOTE, EMULATED_MMA };

void *emulated_dynamic_shared(void);
void emulated_barrier(const char *file, int line);
int emulated_lane(void);
/* A lane's bytes (at most 32, as many in all lanes) become known to the lanes of the mask: those of lane i
 * are at 32 i of what comes back, until the lane's next exchange. */
const unsigned char *emulated_exchange(enum emulated_kind kind, unsigned mask, const void *mine, size_t bytes,
                                       const char *file, int line);
/* A copy that is done at once or when its thread waits, as the seed draws; without one, as late as can be.
 * from NULL: zeros. */
void emulated_copy_begin(void *to, const void *from, size_t bytes);
void emulated_copy_wait(void);
/* The thread, and the launch with it, is at an end: says what is wrong, for people. */
void emulated_trap(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Its errors are those of cudaGetLastError. The arguments are copied. */
void emulated_start(const char *name, const void *kernel, const unsigned grid[3], const unsigned block[3],
                    size_t shared, cudaStream_t stream, void (*call)(void *arguments), const void *arguments,
                    size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
