#ifndef DDP_TRAINER_DEVICE_CPU_THREADS_H
#define DDP_TRAINER_DEVICE_CPU_THREADS_H

#include <stdint.h>

/* The compute threads: those of the OpenMP library that oneDNN loads. */

typedef void (*cpu_part_fn)(void *arg, int64_t part, int thread);
struct cpu_threads {
    int count;
    void (*parallel)(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
    int (*thread_num)(void);
    int (*thread_count)(void);
};
void cpu_threads_open(struct cpu_threads *t, int count);
/* Calls fn for each part, on several threads; `thread` is below t->count. Returns when all parts are done. */
void cpu_threads_run(const struct cpu_threads *t, int64_t parts, cpu_part_fn fn, void *arg);

#endif
