#ifndef DDP_TRAINER_DEVICE_CPU_CPU_H
#define DDP_TRAINER_DEVICE_CPU_CPU_H

#include "trainer/device/cpu/sets.h"
#include "trainer/device/cpu/threads.h"
#include "trainer/device/device.h"

/* The CPU device. oneDNN computes matrix products; only gemm.c and gemm_bf16.c include it. All other
 * operations are in kernels.c, layers.c, muon.c and attention.c. These are compiled once for each instruction set,
 * and the best set is chosen when the device is opened. For `precision: bf16` on CPUs that multiply bf16 there are
 * attention_bf16.c, and layers.c compiled once more. These files work on parts of an operation. dense.c, loss.c, flat.c and sequence.c divide
 * operations into parts for the threads. The division does not depend on the number of threads, and sums over
 * parts are added in order. Therefore bits do not depend on the number of threads either. */
MUST_CHECK enum err_code cpu_open(struct device **out, int local_rank, int local_ranks, int threads,
                                  struct err *e);

struct cpu_bf16;
struct cpu_profile;
struct cpu_room {
    void *memory;
    size_t bytes;
};
struct cpu_device {
    struct device base;
    struct cpu_set set;
    const struct cpu_half *half; /* for bf16; NULL: as for floats */
    struct cpu_threads threads;
    struct cpu_bf16 *bf16;
    struct cpu_profile *profile; /* NULL: operations are not measured */
    struct err first;            /* first error; kept until wait returns it */
    /* Memory of one operation: allocated by reserve, or by the first operation that needs more. */
    struct cpu_room scratch;
    struct cpu_room wide; /* both factors of a bf16 product as floats, for a CPU without bf16 products */
};
static inline struct cpu_device *cpu_of(struct device *d)
{
    return (struct cpu_device *)(void *)d;
}
/* Returns room->memory, enlarged to at least `bytes`, 64-byte aligned. Its content is lost. Returns NULL if
 * there is no memory; this becomes the device's error. */
void *cpu_grow(struct cpu_device *c, struct cpu_room *room, size_t bytes);
static inline void *cpu_scratch(struct cpu_device *c, size_t bytes)
{
    return cpu_grow(c, &c->scratch, bytes);
}
void cpu_failed(struct cpu_device *c, const struct err *e);

/* The number of parts of n tokens or rows. It does not depend on the number of threads. It is small, because
 * each part may have column sums of its own. */
static inline int64_t cpu_parts(int64_t n)
{
    return n > 1024 ? 32 : (n + 31) / 32;
}
/* The same where nothing is summed over the parts, so that all threads have equally many. */
static inline int64_t cpu_even_parts(const struct cpu_device *c, int64_t n)
{
    const int64_t even = cpu_rounded(cpu_parts(n), c->threads.count);
    return even < n ? even : n;
}
static inline int64_t cpu_part_start(int64_t n, int64_t parts, int64_t part)
{
    return n * part / parts;
}

#endif
