#ifndef DDP_TRAINER_DEVICE_CPU_CPU_H
#define DDP_TRAINER_DEVICE_CPU_CPU_H

#include "trainer/device/cpu/sets.h"
#include "trainer/device/cpu/threads.h"
#include "trainer/device/device.h"

/* The CPU device. Matrix products are oneDNN's (gemm.c, gemm_bf16.c alone see it); everything else is
 * compiled once per instruction set and chosen at open: kernels.c, layers.c, attention.c. Those work on
 * parts; dense.c, loss.c, flat.c and sequence.c cut operations into parts and hand them to the threads. How
 * an operation is cut does not depend on how many threads there are, and sums over parts are folded in order:
 * so neither do its bits. */
MUST_CHECK enum err_code cpu_open(struct device **out, int local_rank, int local_ranks, int threads,
                                  struct err *e);

struct cpu_bf16;
struct cpu_room {
    void *memory;
    size_t bytes;
};
struct cpu_device {
    struct device base;
    struct cpu_set set;
    struct cpu_threads threads;
    struct cpu_bf16 *bf16;
    struct err first;        /* sticks until wait */
    struct cpu_room scratch; /* of one operation; reserve makes it beforehand, else it grows */
    struct cpu_room wide;    /* both factors of a bf16 product as floats, where the CPU has none */
};
static inline struct cpu_device *cpu_of(struct device *d)
{
    return (struct cpu_device *)(void *)d;
}
/* At least that much, 64-byte aligned; what was in it is lost. NULL when there is no memory: that is then the
 * device's error. */
void *cpu_grow(struct cpu_device *c, struct cpu_room *room, size_t bytes);
static inline void *cpu_scratch(struct cpu_device *c, size_t bytes)
{
    return cpu_grow(c, &c->scratch, bytes);
}
void cpu_failed(struct cpu_device *c, const struct err *e);

/* Parts of n tokens or rows: as many whatever the number of threads, and few, since each may have column sums
 * of its own. */
static inline int64_t cpu_parts(int64_t n)
{
    return n > 1024 ? 32 : (n + 31) / 32;
}
static inline int64_t cpu_part_start(int64_t n, int64_t parts, int64_t part)
{
    return n * part / parts;
}

#endif
